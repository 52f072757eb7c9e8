"""The asset `generations` through real Dagster runs: a file of requests becomes a dataset."""

import json
from pathlib import Path

import dagster as dg
import pytest
import yaml
from PIL import Image

from assets.core.foundry import FoundryResource
from assets.generations.assets import GENERATION_SET
from dagster_project import generation_jobs
from dagster_project.definitions import ASSETS, CHECKS
from dagster_project.run import QUIET, run_lineage
from dagster_project.stages import selected
from interleave_foundry import query
from schemas import FoundryError
from schemas.generations import GENERATIONS
from schemas.trajectories import ATTEMPTS, PLANS, TRAJECTORIES
from warehouse import EncodedImage

pytestmark = pytest.mark.slow

WISHES = [
    {"id": "snow", "text": "Show how to build a snowman in 3 steps, with captions"},
    {"id": "bad", "text": "A red house", "t_max": 0},
    {"id": "house", "text": "A red house beside a tree", "seed": 4},
    {"id": "physics", "text": "quantum chromodynamics"},
    {"text": "A yellow star"},
]


@pytest.fixture
def wishes(tmp_path):
    """The file of requests."""
    path = tmp_path / "wishes.jsonl"
    write(path, WISHES)
    return path


@pytest.fixture
def foundry(tmp_path, profile, wishes) -> FoundryResource:
    """Like that of the other runs, with requests in batches of three."""
    content = yaml.safe_load(Path(profile).read_text())
    content["generations"] = {"requests": str(wishes), "name": "wishes", "batch_size": 3}
    path = tmp_path / "answering.yaml"
    path.write_text(yaml.safe_dump(content))
    return FoundryResource(profile=str(path), root=str(tmp_path / "lake"))


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))


def answer(foundry, instance, **more):
    return run_lineage(foundry, instance, shards=1, select=["generations"], **more)


def told(foundry):
    columns = "coalesce(request_key, '') request_key, status, door, shard, attempts, t_max, seed"
    found = query(f"select {columns} from generations order by shard, text", foundry.home)
    return found.to_dict("records")


def journals(foundry):
    folder = Path(foundry.root, "journals", "generations")
    return {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}


def test_a_file_of_requests_is_answered_batch_by_batch(foundry, instance):
    outcome = answer(foundry, instance)
    assert outcome.materialized == ["generations[wishes-0000]", "generations[wishes-0001]"]
    rows = told(foundry)
    assert [(row["request_key"], row["status"], row["shard"]) for row in rows] == [
        ("house", "complete", "wishes-0000"),
        ("snow", "complete", "wishes-0000"),
        ("", "complete", "wishes-0001"),
        ("physics", "refused", "wishes-0001"),
    ]
    assert {row["door"] for row in rows} == {"asset"} and rows[0]["seed"] == 4
    aside = query("from quarantine where stage = 'generations'", foundry.home)
    assert aside.reason.str.contains("wishes.jsonl: row 2: t_max").tolist() == [True]
    joined = query(
        "select count(*) n from generations join attempts using (trajectory_id)", foundry.home
    )
    assert joined.n[0] == sum(row["attempts"] for row in rows) > 0


def test_the_lineage_learns_nothing_of_it(foundry, instance):
    answer(foundry, instance)
    lake = foundry.home.lake
    assert not any(lake.partitions(table) for table in (PLANS, TRAJECTORIES, ATTEMPTS))


def test_the_dataset_is_one_that_others_can_load(foundry, instance):
    datasets = pytest.importorskip("datasets")
    answer(foundry, instance)
    folder = foundry.home.exports / "generations" / "wishes"
    data = datasets.load_dataset(
        str(folder), split="train", cache_dir=str(foundry.home.local / "cache")
    )
    rows = {row["request"]: row for row in data}
    assert set(rows) == {wish["text"] for wish in WISHES if wish.get("id") != "bad"}
    snow = rows["Show how to build a snowman in 3 steps, with captions"]
    assert snow["status"] == "complete" and len(snow["images"]) == len(snow["texts"]) == 3
    assert snow["images"][0].size == (96, 96) and all(snow["texts"])
    assert rows["quantum chromodynamics"]["status"] == "refused"
    assert rows["quantum chromodynamics"]["images"] == []


def test_a_run_shows_statuses_and_a_contact_sheet(foundry, instance):
    answer(foundry, instance)
    records = instance.fetch_materializations(dg.AssetKey("generations"), limit=2).records
    metadata = records[0].asset_materialization.metadata
    assert "data:image/png" in metadata["statuses"].value
    assert "data:image/png" in metadata["stories"].value
    assert metadata["dagster/row_count"].value == 2
    assert metadata["dataset"].value.endswith("exports/generations/wishes")


def test_nothing_is_done_twice(foundry, instance):
    answer(foundry, instance)
    before, hashes = journals(foundry), hashes_of(foundry)
    again = answer(foundry, instance)
    assert not again.materialized and len(again.reused) == 2
    forced = answer(foundry, instance, force=True)
    assert len(forced.materialized) == 2
    assert journals(foundry) == before and hashes_of(foundry) == hashes


def test_a_picture_that_was_replaced_is_looked_at_again(foundry, instance, wishes):
    given = wishes.with_name("given.png")
    house, sun = (
        EncodedImage.of(Image.new("RGB", (96, 96), colour)) for colour in ("red", "yellow")
    )
    given.write_bytes(house.data)
    write(wishes, [{"text": "Describe <image>", "images": ["given.png"]}])
    assert answer(foundry, instance).materialized and not answer(foundry, instance).materialized
    given.write_bytes(sun.data)
    assert answer(foundry, instance).materialized
    shown = query("select input_images from generations", foundry.home).input_images
    assert [list(images) for images in shown] == [[sun.sha256]]


def hashes_of(foundry):
    lake = foundry.home.lake
    return [lake.content_hash(GENERATIONS, name) for name in lake.partitions(GENERATIONS)]


def test_a_file_that_grew_tells_what_is_new(foundry, instance, wishes):
    answer(foundry, instance)
    before = journals(foundry)
    write(wishes, [*WISHES, {"text": "A cat"}, {"text": "A dog"}])
    grown = answer(foundry, instance)
    assert grown.reused == ["generations[wishes-0000]"]
    assert grown.materialized == ["generations[wishes-0001]", "generations[wishes-0002]"]
    assert before.items() <= journals(foundry).items()
    assert len(journals(foundry)) == len(before) + 2


def test_other_rules_tell_again(foundry, instance, tmp_path):
    answer(foundry, instance)
    content = yaml.safe_load(Path(foundry.profile).read_text())
    path = tmp_path / "strict.yaml"
    path.write_text(yaml.safe_dump({**content, "loop": {"t_max": 2}}))
    other = FoundryResource(profile=str(path), root=foundry.root)
    assert len(answer(other, instance).materialized) == 2
    assert {row["t_max"] for row in told(other)} == {2}


def test_a_lost_picture_fails_its_check(foundry, instance):
    answer(foundry, instance)
    images = query("select images from generations where request_key = 'house'", foundry.home)
    Path(foundry.home.images.url(images.images[0][0])).unlink()
    result = dg.materialize(
        [*ASSETS, *CHECKS],
        selection=dg.AssetSelection.checks_for_assets("generations"),
        tags={"dagster/partition": "wishes-0000"},
        instance=instance,
        resources={"foundry": foundry},
        run_config=QUIET,
        raise_on_error=False,
    )
    failed = {e.check_name for e in result.get_asset_check_evaluations() if not e.passed}
    assert failed == {"pictures_intact"}


def test_a_batch_of_nothing_but_bad_rows_says_so(foundry, instance, wishes):
    write(wishes, [{"txt": "A cat"}])
    with pytest.raises(FoundryError, match=r"row 1: text: Field required"):
        answer(foundry, instance)


def test_the_schedule_asks_for_what_is_not_answered(foundry, instance, wishes):
    def requested():
        foundry_here = {"foundry": foundry}
        with dg.build_schedule_context(instance=instance, resources=foundry_here) as context:
            return list(generation_jobs.answer_requests(context))

    assert [run.partition_key for run in requested()] == ["wishes-0000", "wishes-0001"]
    answer(foundry, instance)
    assert isinstance(requested()[0], dg.SkipReason)
    write(wishes, [*WISHES, {"text": "A cat"}])
    assert [run.partition_key for run in requested()] == ["wishes-0001"]


def test_the_sensor_shows_batches_and_starts_nothing(foundry, instance):
    with dg.build_sensor_context(instance=instance, resources={"foundry": foundry}) as context:
        assert isinstance(generation_jobs.register_requests(context), dg.SkipReason)
    partitions = GENERATION_SET.partitions.definition.name
    assert instance.get_dynamic_partitions(partitions) == ["wishes-0000", "wishes-0001"]


def test_the_job_answers_a_batch(foundry, instance):
    instance.add_dynamic_partitions("batches", ["wishes-0000"])
    here = dg.Definitions(
        ASSETS,
        jobs=[generation_jobs.generate_stories],
        asset_checks=CHECKS,
        resources={"foundry": foundry},
    )
    job = here.resolve_job_def("generate_stories")
    done = job.execute_in_process(instance=instance, partition_key="wishes-0000", run_config=QUIET)
    assert done.success and len(told(foundry)) == 2


def test_it_is_made_where_the_profile_has_requests(foundry, profile):
    plain = FoundryResource(profile=profile, root=foundry.root).settings
    assert "generations" in {node.name for node in selected([], foundry.settings)}
    assert "generations" not in {node.name for node in selected([], plain)}
    with pytest.raises(FoundryError, match="has no section generations"):
        selected(["generations"], plain)
