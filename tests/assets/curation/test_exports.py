"""Exports as the tools that read them see them."""

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from assets.curation.critic_sets import build_critic_rl, build_critic_sft
from assets.curation.exports import Exported, PlaceholderError, export_all
from assets.curation.planner_sets import build_planner_sft
from assets.curation.sequences import build_sequences
from assets.curation.settings import CurationSettings
from assets.curation.steps import build_steps
from schemas import BadImageError, FoundryError
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT, SEQUENCES, STEPS
from tests.assets.curation.curated_world import World
from warehouse import Home

BUILDERS = {
    STEPS: build_steps,
    CRITIC_SFT: build_critic_sft,
    CRITIC_RL: build_critic_rl,
    PLANNER_SFT: build_planner_sft,
    SEQUENCES: build_sequences,
}
AS_IS = {"balance_sft": {"mode": "none"}, "balance_rl": {"mode": "none"}}


def curated(world: World, **exports) -> tuple[Home, CurationSettings]:
    for number in range(4):
        world.story(f"calm{number}", [(9, True)], [(9, True)])
        world.story(f"wild{number}", [(1, False), (9, True)], [(9, True)], input_images=number % 2)
    world.story("unseen", [(9, True)], split="heldout")
    options = CurationSettings(split={"theta": 0}, critic=AS_IS, exports=exports)
    home = world.write()
    for table, build in BUILDERS.items():
        home.lake.write(table, build(home, options)[0])
    return home, options


def exported(world: World, name: str, **exports) -> Exported:
    home, options = curated(world, formats=(name,), **exports)
    (done,) = export_all(home, options)
    return done


def moved(done: Exported, tmp_path: Path) -> Path:
    """The export in another place, the home gone: what is left must be complete."""
    target = tmp_path / "elsewhere"
    shutil.copytree(done.path, target)
    shutil.rmtree(tmp_path / "home")
    return target


def test_llamafactory_finds_messages_and_images(world, tmp_path):
    folder = moved(exported(world, "llamafactory"), tmp_path)
    info = json.loads((folder / "dataset_info.json").read_text())
    assert set(info) == {"planner_sft", "critic_sft", "sequences_easy", "sequences_reflection"}
    for declared in info.values():
        assert declared["formatting"] == "sharegpt"
        assert declared["columns"] == {"messages": "messages", "images": "images"}
        rows = json.loads((folder / declared["file_name"]).read_text())
        assert rows
        for row in rows:
            assert [message["role"] for message in row["messages"]] == ["user", "assistant"]
            text = "".join(message["content"] for message in row["messages"])
            assert text.count("<image>") == len(row["images"])
            assert all(Image.open(folder / image).size == (16, 16) for image in row["images"])


def test_llamafactory_meets_rows_with_pictures_first(world):
    # It fails at a picture that follows 1,000 rows without one.
    done = exported(world, "llamafactory")
    rows = json.loads((done.path / "planner_sft.json").read_text())
    pictured = [bool(row["images"]) for row in rows]
    assert set(pictured) == {True, False}
    assert pictured == sorted(pictured, reverse=True)


def test_llamafactory_pictures_are_what_their_names_say(world):
    done = exported(world, "llamafactory")
    pictures = list((done.path / "images").rglob("*.png"))
    assert pictures
    for path in pictures:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.stem


def test_verl_rows_hold_their_pictures(world, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    done = exported(world, "verl")
    file, cache = moved(done, tmp_path) / "critic_rl.parquet", tmp_path / "cache"
    # As verl opens it.
    rows = list(
        datasets.load_dataset("parquet", data_files=str(file), cache_dir=str(cache))["train"]
    )
    assert len(rows) == done.card.counts["critic_rl.parquet"] == 12
    row = rows[0]
    assert {"prompt", "images", "data_source", "reward_model", "extra_info"} <= set(row)
    assert row["prompt"][0]["content"].count("<image>") == len(row["images"]) == 2
    assert row["reward_model"]["ground_truth"].keys() == {"success", "semantics", "quality"}
    assert [r["extra_info"]["index"] for r in rows] == list(range(12))
    for row in rows:
        hashes = [hashlib.sha256(image["bytes"]).hexdigest() for image in row["images"]]
        assert hashes == [row["extra_info"]["origin_image"], row["extra_info"]["edited_image"]]


def test_verl_rows_can_name_their_pictures_instead(world, tmp_path):
    folder = moved(exported(world, "verl", verl_images="paths"), tmp_path)
    for row in pq.read_table(folder / "critic_rl.parquet").to_pylist():
        assert all((folder / image["image"]).is_file() for image in row["images"])


def test_the_reference_reads_exactly_its_keys(world, tmp_path):
    folder = moved(exported(world, "reference"), tmp_path)
    rows = [json.loads(line) for line in (folder / "critic_rl.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    for row in rows:
        assert list(row) == [
            "origin_prompt",
            "rewritten_prompt",
            "origin_image_path",
            "edited_image_path",
            "evaluation",
        ]
        assert row["evaluation"].keys() == {"success", "semantics", "quality"}
        for key in ("origin_image_path", "edited_image_path"):
            assert (folder / row[key]).is_file()
    white = [row for row in rows if "data/interleave/white.png" in row["origin_image_path"]]
    assert {row["origin_prompt"] for row in white} == {"draw wild0 1", "draw wild2 1"}
    assert Image.open(folder / white[0]["origin_image_path"]).getcolors() == [
        (256, (255, 255, 255))
    ]


def test_hugging_face_opens_it_offline_with_decoded_images(world, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    done = exported(world, "huggingface", rows_per_file=5)
    folder = moved(done, tmp_path)
    for name, count in done.card.counts.items():
        data = datasets.load_dataset(
            str(folder), name, split="train", cache_dir=str(tmp_path / "cache")
        )
        assert len(data) == count > 0
        row = data[0]
        text = "".join(message["content"] for message in row["messages"])
        assert text.count("<image>") == len(row["images"])
        assert all(image.size == (16, 16) for image in row["images"])
        assert isinstance(data.features["images"].feature, datasets.Image)
    assert len(list((folder / "data" / "critic_rl").iterdir())) == 3


def test_an_empty_home_exports_empty_sets(world):
    done = {e.name: e for e in export_all(world.home, CurationSettings())}
    assert json.loads((done["llamafactory"].path / "critic_sft.json").read_text()) == []
    assert (done["reference"].path / "critic_rl.jsonl").read_text() == ""
    assert pq.read_table(done["verl"].path / "critic_rl.parquet").num_rows == 0
    assert "configs: []" in (done["huggingface"].path / "README.md").read_text()


def test_unchanged_content_is_not_exported_again(world):
    home, options = curated(world)
    first = export_all(home, options)
    stamps = {path: path.stat().st_mtime_ns for path in home.exports.rglob("*")}
    again = export_all(home, options)
    assert [e.changed for e in first] == [True] * 4
    assert [e.changed for e in again] == [False] * 4
    assert stamps == {path: path.stat().st_mtime_ns for path in home.exports.rglob("*")}
    assert [e.card for e in first] == [e.card for e in again]


def test_changed_content_replaces_the_export_whole(world):
    home, options = curated(world, formats=("reference",))
    export_all(home, options)
    (home.exports / "reference" / "stray.txt").write_text("left over")
    home.lake.write(CRITIC_RL, home.lake.read(CRITIC_RL).slice(0, 3))
    (done,) = export_all(home, options)
    assert done.changed and done.card.counts == {"critic_rl.jsonl": 3}
    assert not (done.path / "stray.txt").exists()
    assert [path.name for path in home.exports.iterdir()] == ["reference"]


def test_the_card_says_what_it_is_and_where_it_came_from(world):
    done = exported(world, "llamafactory")
    card = json.loads((done.path / "card.json").read_text())
    assert card["splits"]["prompts: heldout"] == 1
    assert card["splits"]["steps: sft"] == card["splits"]["steps: rl"] == 8
    assert card["sources"]["generators"] == ["pen"]
    assert "critic@1" in card["sources"]["agent prompts"]
    assert card["thresholds"]["theta"] == 0
    assert card["thresholds"]["filter.low_quality"] == 5
    assert card["tables"]["critic_sft"] == world.home.lake.content_hash(CRITIC_SFT)
    for name, digest in card["files"].items():
        assert hashlib.sha256((done.path / name).read_bytes()).hexdigest() == digest
    markdown = (done.path / "README.md").read_text()
    assert "| critic_sft.json | 8 |" in markdown
    assert str(world.home.local) not in markdown


def test_too_few_placeholders_are_a_clear_error_and_publish_nothing(world):
    home, options = curated(world, formats=("llamafactory",))
    rows = home.lake.read(CRITIC_SFT).to_pylist()
    rows[0]["images"] = rows[0]["images"][:1]
    home.lake.write(CRITIC_SFT, [CRITIC_SFT.row.model_validate(row) for row in rows])
    wanted = "has 2 <image> placeholders for 1 images; materialize critic_sft again"
    with pytest.raises(PlaceholderError, match=wanted):
        export_all(home, options)
    assert list(home.exports.iterdir()) == []


def test_a_file_in_the_way_is_a_clear_error(world):
    home, options = curated(world, formats=("reference",))
    home.exports.write_text("not a folder")
    with pytest.raises(FoundryError, match=r"exports/reference cannot be written: Not a directory"):
        export_all(home, options)


def test_a_missing_picture_is_a_clear_error(world):
    home, options = curated(world, formats=("llamafactory",))
    Path(home.images.url(world.rows["attempts"][0].image)).unlink()
    with pytest.raises(BadImageError, match="is missing"):
        export_all(home, options)


def test_a_remote_home_is_exported_too(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERLEAVE_LOCAL", str(tmp_path / "local"))
    done = exported(World(Home(f"memory://curation-{tmp_path.name}")), "reference")
    assert done.path == tmp_path / "local" / "exports" / "reference"
    assert len((done.path / "critic_rl.jsonl").read_text().splitlines()) == 12
