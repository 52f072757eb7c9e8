"""The asset `generations` through real Dagster runs: a file of requests becomes a dataset."""

import json
import shutil
from pathlib import Path

import dagster as dg
import pytest
import yaml
from PIL import Image

from assets.core.foundry import FoundryResource
from assets.generations.assets import GENERATION_SET
from dagster_project.run import run_lineage
from dagster_project.stages import select_nodes
from interleave_foundry import query
from schemas import FoundryError
from schemas.generations import GENERATIONS
from schemas.trajectories import ATTEMPTS, PLANS, TRAJECTORIES
from tests.dagster_project.conftest import copy_lake, opened, tiny_foundry
from tests.helpers.ticks import ConditionTicks, materialize, run_job, sensor_tick
from warehouse import EncodedImage

pytestmark = pytest.mark.slow

REQUESTS = [
    {"id": "snow", "text": "Show how to build a snowman in 3 steps, with captions"},
    {"id": "bad", "text": "A red house", "t_max": 0},
    {"id": "house", "text": "A red house beside a tree", "seed": 4},
    {"id": "physics", "text": "quantum chromodynamics"},
    {"text": "A yellow star"},
]


def foundry_in(folder: Path) -> FoundryResource:
    """A profile with a file of requests, in batches of three."""
    requests = folder / "inbox.jsonl"
    write(requests, REQUESTS)
    generations = {"requests": str(requests), "name": "inbox", "batch_size": 3}
    return tiny_foundry(folder, generations=generations)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("requests")


@pytest.fixture(scope="module")
def answered_once(folder):
    """The lake after the requests of the file were answered; what the run materialized."""
    foundry = foundry_in(folder)
    with opened(foundry) as instance:
        materialized = answer(foundry, instance).materialized
    shutil.copytree(foundry.root, folder / "answered")
    return materialized


@pytest.fixture
def requests(folder):
    """The file of requests."""
    return folder / "inbox.jsonl"


@pytest.fixture
def foundry(folder):
    """An empty lake; its requests, like the file's name, are part of what is fingerprinted."""
    shutil.rmtree(folder / "lake", ignore_errors=True)
    return foundry_in(folder)


@pytest.fixture
def answered(answered_once, foundry):
    """`foundry` with its requests answered; ask for it before `instance`."""
    copy_lake(Path(foundry.root).with_name("answered"), Path(foundry.root))
    return foundry


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))


def answer(foundry, instance, **more):
    return run_lineage(foundry, instance, shards=1, select=["generations"], **more)


def rows_of(foundry):
    columns = "coalesce(request_key, '') request_key, status, channel, shard, attempts, t_max, seed"
    found = query(f"select {columns} from generations order by shard, text", foundry.home)
    return found.to_dict("records")


def journals(foundry):
    folder = Path(foundry.root, "journals", "generations")
    return {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}


def test_a_file_of_requests_is_answered_batch_by_batch(answered_once, answered, instance):
    assert answered_once == ["generations[inbox-0000]", "generations[inbox-0001]"]
    rows = rows_of(answered)
    assert [(row["request_key"], row["status"], row["shard"]) for row in rows] == [
        ("house", "complete", "inbox-0000"),
        ("snow", "complete", "inbox-0000"),
        ("", "complete", "inbox-0001"),
        ("physics", "refused", "inbox-0001"),
    ]
    assert {row["channel"] for row in rows} == {"asset"} and rows[0]["seed"] == 4
    quarantine = query("from quarantine where stage = 'generations'", answered.home)
    assert quarantine.reason.str.contains("inbox.jsonl: row 2: t_max").tolist() == [True]
    joined = query(
        "select count(*) n from generations join attempts using (trajectory_id)", answered.home
    )
    assert joined.n[0] == sum(row["attempts"] for row in rows) > 0
    lake = answered.home.lake
    assert not any(lake.partitions(table) for table in (PLANS, TRAJECTORIES, ATTEMPTS))
    records = instance.fetch_materializations(dg.AssetKey("generations"), limit=2).records
    metadata = records[0].asset_materialization.metadata
    for plot in ("statuses", "stories"):
        assert "data:image/png" in metadata[plot].value
    assert metadata["dagster/row_count"].value == 2
    assert metadata["dataset"].value.endswith("exports/generations/inbox")


def test_the_dataset_is_one_that_others_can_load(answered, instance):
    datasets = pytest.importorskip("datasets")
    folder = answered.home.exports / "generations" / "inbox"
    data = datasets.load_dataset(
        str(folder), split="train", cache_dir=str(answered.home.local / "cache")
    )
    rows = {row["request"]: row for row in data}
    assert set(rows) == {row["text"] for row in REQUESTS if row.get("id") != "bad"}
    snow = rows["Show how to build a snowman in 3 steps, with captions"]
    assert snow["status"] == "complete" and len(snow["images"]) == len(snow["texts"]) == 3
    assert snow["images"][0].size == (96, 96) and all(snow["texts"])
    assert rows["quantum chromodynamics"]["status"] == "refused"
    assert rows["quantum chromodynamics"]["images"] == []


def test_nothing_is_done_twice(answered, instance):
    before, hashes = journals(answered), hashes_of(answered)
    again = answer(answered, instance)
    assert not again.materialized and len(again.reused) == 2
    forced = answer(answered, instance, force=True)
    assert len(forced.materialized) == 2
    assert journals(answered) == before and hashes_of(answered) == hashes


def test_a_replaced_image_file_is_noticed(foundry, instance, requests):
    given = requests.with_name("given.png")
    house, sun = (
        EncodedImage.of(Image.new("RGB", (96, 96), colour)) for colour in ("red", "yellow")
    )
    given.write_bytes(house.data)
    write(requests, [{"text": "Describe <image>", "images": ["given.png"]}])
    assert answer(foundry, instance).materialized and not answer(foundry, instance).materialized
    given.write_bytes(sun.data)
    assert answer(foundry, instance).materialized
    shown = query("select input_images from generations", foundry.home).input_images
    assert [list(images) for images in shown] == [[sun.sha256]]


def hashes_of(foundry):
    lake = foundry.home.lake
    return [lake.content_hash(GENERATIONS, name) for name in lake.partitions(GENERATIONS)]


def test_a_file_that_grew_answers_only_the_new_rows(answered, instance, requests):
    before = journals(answered)
    write(requests, [*REQUESTS, {"text": "A cat"}, {"text": "A dog"}])
    grown = answer(answered, instance)
    assert grown.reused == ["generations[inbox-0000]"]
    assert grown.materialized == ["generations[inbox-0001]", "generations[inbox-0002]"]
    assert before.items() <= journals(answered).items()
    assert len(journals(answered)) == len(before) + 2


def test_other_options_answer_again(answered, instance, tmp_path):
    content = yaml.safe_load(Path(answered.profile).read_text())
    path = tmp_path / "strict.yaml"
    path.write_text(yaml.safe_dump({**content, "loop": {"t_max": 2}}))
    other = FoundryResource(profile=str(path), root=answered.root)
    assert len(answer(other, instance).materialized) == 2
    assert {row["t_max"] for row in rows_of(other)} == {2}


def test_a_lost_image_fails_its_check(answered, instance):
    images = query("select images from generations where request_key = 'house'", answered.home)
    Path(answered.home.images.url(images.images[0][0])).unlink()
    checks = dg.AssetSelection.checks_for_assets("generations")
    tags = {"dagster/partition": "inbox-0000"}
    result = materialize(answered, instance, checks, tags=tags, raise_on_error=False)
    failed = {e.check_name for e in result.get_asset_check_evaluations() if not e.passed}
    assert failed == {"pictures_intact"}


def test_unanswered_batches_are_requested_once_a_night(foundry, instance, requests):
    ticks = ConditionTicks(foundry, instance)

    def next_night():
        sensor_tick("register_requests", foundry, instance)
        return ticks.next(after_days=1).get("generations", [])

    assert "generations" not in ticks.next()
    assert next_night() == ["inbox-0000", "inbox-0001"]
    assert "generations" not in ticks.next(), "in this night"
    answer(foundry, instance)
    assert not next_night()
    write(requests, [*REQUESTS, {"text": "A cat"}])
    assert next_night() == ["inbox-0001"]
    write(requests, [{"txt": "no text"}])
    for _every_night in range(2):
        assert next_night() == ["inbox-0000"], "the other one is gone"
        with pytest.raises(FoundryError, match=r"row 1: text: Field required"):
            answer(foundry, instance)


def test_batches_are_partitions_where_the_profile_has_requests(foundry, instance, profile):
    plain = FoundryResource(profile=profile, root=foundry.root)
    assert not ConditionTicks(plain, instance).next()
    assert sensor_tick("register_requests", plain, instance).skip_message == "0 batches of requests"
    assert "generations" not in {node.name for node in select_nodes([], plain.settings)}
    with pytest.raises(FoundryError, match="has no section generations"):
        select_nodes(["generations"], plain.settings)

    ticked = sensor_tick("register_requests", foundry, instance)
    assert (ticked.run_requests, ticked.skip_message) == ([], "2 batches of requests")
    partitions = GENERATION_SET.partitions.definition.name
    assert instance.get_dynamic_partitions(partitions) == ["inbox-0000", "inbox-0001"]
    assert "generations" in {node.name for node in select_nodes([], foundry.settings)}


def test_the_job_answers_a_batch(foundry, instance):
    instance.add_dynamic_partitions("batches", ["inbox-0000"])
    done = run_job("make_generations", foundry, instance, partition_key="inbox-0000")
    assert done.success and len(rows_of(foundry)) == 2
