"""Exports, read as their tools read them."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from assets.curation.exports.publisher import export_all
from assets.curation.planner_sets import build_planner_rl
from assets.curation.settings import CurationSettings, SequenceSettings
from schemas import BadImageError, FoundryError
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_RL, PLANNER_SFT, SEQUENCES, STEPS
from schemas.prompts import PROMPTS, PromptRow
from schemas.trajectories import ATTEMPTS
from tests.assets.curation import curated_world
from tests.assets.curation.curated_world import AS_IS, World
from training.sft.rows import data_set_files
from warehouse import Home

SETS = (STEPS, CRITIC_SFT, CRITIC_RL, PLANNER_SFT, SEQUENCES)


def settings(**exports) -> CurationSettings:
    return CurationSettings(split={"theta": 0}, critic=AS_IS, exports=exports)


def curate(home: Home) -> Home:
    world = World(home)
    for number in range(4):
        world.add(f"calm{number}", [(9, True)], [(9, True)])
        world.add(f"wild{number}", [(1, False), (9, True)], [(9, True)], input_images=number % 2)
    world.add("unseen", [(9, True)], split="heldout")
    return curated_world.curate(world.write(), settings(), *SETS)


@pytest.fixture(scope="module")
def curated_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("curated") / "home"
    curate(Home(folder))
    return folder


def linked_copy(folder: Path, target: Path) -> Home:
    """A home of hard links to the files of another."""
    shutil.copytree(folder, target, copy_function=os.link)
    return Home(target)


@pytest.fixture
def home(curated_folder, tmp_path) -> Home:
    return linked_copy(curated_folder, tmp_path / "home")


def export(home: Home, name: str, **exports) -> Path:
    (card,) = export_all(home, settings(formats=(name,), **exports))
    assert card.name == name
    return home.exports / name


def counts_of(path: Path) -> dict[str, int]:
    return json.loads((path / "card.json").read_text())["counts"]


def move(path: Path, tmp_path: Path) -> Path:
    """Copy the export to another folder and delete the home: the copy must be complete."""
    target = tmp_path / "copy"
    shutil.copytree(path, target)
    shutil.rmtree(tmp_path / "home")
    return target


def test_llamafactory_finds_messages_and_images(home, tmp_path):
    folder = move(export(home, "llamafactory"), tmp_path)
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
            for image in row["images"]:
                assert Image.open(folder / image).size == (16, 16)
                content = (folder / image).read_bytes()
                assert hashlib.sha256(content).hexdigest() == Path(image).stem
    # It fails at an image that follows 1,000 rows without one.
    rows = json.loads((folder / "planner_sft.json").read_text())
    has_images = [bool(row["images"]) for row in rows]
    assert has_images == sorted(has_images, reverse=True) and len(set(has_images)) == 2


def test_verl_rows_embed_their_images(home, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    folder = move(export(home, "verl"), tmp_path)
    file, cache = folder / "critic_rl.parquet", tmp_path / "cache"
    # As verl opens it.
    rows = list(
        datasets.load_dataset("parquet", data_files=str(file), cache_dir=str(cache))["train"]
    )
    assert len(rows) == counts_of(folder)["critic_rl.parquet"] == 12
    row = rows[0]
    assert {"prompt", "images", "data_source", "reward_model", "extra_info"} <= set(row)
    assert row["prompt"][0]["content"].count("<image>") == len(row["images"]) == 2
    assert row["reward_model"]["ground_truth"].keys() == {"success", "semantics", "quality"}
    assert [r["extra_info"]["index"] for r in rows] == list(range(12))
    for row in rows:
        hashes = [hashlib.sha256(image["bytes"]).hexdigest() for image in row["images"]]
        assert hashes == [row["extra_info"]["origin_image"], row["extra_info"]["edited_image"]]


def test_requests_for_the_planners_grpo_are_a_file_of_their_own(home, tmp_path):
    assert "planner_rl.parquet" not in counts_of(export(home, "verl"))
    prompts = home.lake.read(PROMPTS, ["toy-0000"]).to_pylist()
    new = [PromptRow.model_validate(row | {"shard": "toy-0001"}) for row in prompts]
    home.lake.write(PROMPTS, new, "toy-0001")
    home.lake.write(PLANNER_RL, build_planner_rl(home, settings().planner, "toy"))
    folder = move(export(home, "verl"), tmp_path)
    rows = pq.read_table(folder / "planner_rl.parquet").to_pylist()
    assert len(rows) == counts_of(folder)["planner_rl.parquet"] == 8
    by_images = {len(row["images"]): row for row in rows}
    assert by_images.keys() == {0, 1}
    row = by_images[1]
    assert row["prompt"][0]["content"].count("<image>") == 1
    assert row["reward_model"]["ground_truth"]["request"].startswith("Tell wild")
    assert row["extra_info"]["images"] == [hashlib.sha256(row["images"][0]["bytes"]).hexdigest()]


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    data = [path for path in files if path.name not in ("card.json", "SHA256SUMS")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in data}


def test_large_sets_are_files_of_bounded_size(home):
    names = ("llamafactory", "verl", "reference")
    whole = {name: export(home, name).rename(home.exports / f"{name}-whole") for name in names}
    for rows_per_file in (5, 1000):
        folders = {name: export(home, name, rows_per_file=rows_per_file) for name in names}
        rl = sorted(folders["verl"].glob("critic_rl*.parquet"))
        tables = [pq.read_table(file) for file in rl]
        assert len(rl) == -(-12 // rows_per_file)
        readme = (folders["verl"] / "README.md").read_text()
        assert ("list of the files" in readme) == (len(rl) > 1)
        assert [*counts_of(folders["verl"]).values()] == [12]
        assert all(len(table) <= rows_per_file for table in tables)
        expected = pq.read_table(whole["verl"] / "critic_rl.parquet").to_pylist()
        assert [row for table in tables for row in table.to_pylist()] == expected
        for name in json.loads((folders["llamafactory"] / "dataset_info.json").read_text()):
            files = data_set_files(folders["llamafactory"], name)
            parts = [json.loads(file.read_text()) for file in files]
            assert all(len(part) <= rows_per_file for part in parts)
            expected = json.loads((whole["llamafactory"] / f"{name}.json").read_text())
            assert [row for part in parts for row in part] == expected
        assert len(list(folders["reference"].glob("critic_rl*.jsonl"))) == 1
    for name in names:  # the last are one file each again: nothing of the others is left
        assert contents(folders[name]) == contents(whole[name])


def test_reference_rows_have_exactly_its_keys(home, tmp_path):
    folder = move(export(home, "reference"), tmp_path)
    rows = [json.loads(line) for line in (folder / "critic_rl.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    for row in rows:
        paths = ("origin_image_path", "edited_image_path")
        assert list(row) == ["origin_prompt", "rewritten_prompt", *paths, "evaluation"]
        assert row["evaluation"].keys() == {"success", "semantics", "quality"}
        assert all((folder / row[path]).is_file() for path in paths)
    white = [row for row in rows if "data/interleave/white.png" in row["origin_image_path"]]
    assert {row["origin_prompt"] for row in white} == {"draw wild0 1", "draw wild2 1"}
    colors = Image.open(folder / white[0]["origin_image_path"]).getcolors()
    assert colors == [(256, (255, 255, 255))]


def test_reference_sequences_are_written_as_its_scripts_do(home):
    form = SequenceSettings(form="reference")
    options = settings(formats=("reference",)).model_copy(update={"sequences": form})
    curated_world.curate(home, options, SEQUENCES)
    (card,) = export_all(home, options)
    names = ("interleaved_gen_simple.json", "interleaved_gen_reflection.json")
    assert card.counts == {"critic_rl.jsonl": 12, **dict.fromkeys(names, 8)}
    folder = home.exports / "reference"
    for name in names:
        text = (folder / name).read_text("utf-8")
        rows = json.loads(text)
        assert text == json.dumps(rows, ensure_ascii=False, indent=4)  # as they dump it
        for row in rows:
            assert list(row) == ["messages", "images"]
            assert row["messages"][1]["content"].startswith("<gthink>\n")
            assert all(Image.open(folder / image).size == (16, 16) for image in row["images"])


def test_hugging_face_loads_offline_with_decoded_images(home, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    folder = move(export(home, "huggingface", rows_per_file=5), tmp_path)
    counts = {name: count for name, count in counts_of(folder).items() if count}
    assert set(counts) == {"critic_sft", "critic_rl", "planner_sft", "sequences", "prompts"}
    for name, count in counts.items():
        data = datasets.load_dataset(
            str(folder), name, split="train", cache_dir=str(tmp_path / "cache")
        )
        assert len(data) == count > 0
        row = next(row for row in data if row["images"])
        if name != "prompts":
            text = "".join(message["content"] for message in row["messages"])
            assert text.count("<image>") == len(row["images"])
        assert all(image.size == (16, 16) for image in row["images"])
        assert isinstance(data.features["images"].feature, datasets.Image)
    assert len(list((folder / "data" / "critic_rl").iterdir())) == 3


def test_empty_home_exports_empty_sets(tmp_path):
    exports = Home(tmp_path / "empty").exports
    export_all(Home(tmp_path / "empty"), CurationSettings())
    assert json.loads((exports / "llamafactory" / "critic_sft.json").read_text()) == []
    assert (exports / "reference" / "critic_rl.jsonl").read_text() == ""
    assert pq.read_table(exports / "verl" / "critic_rl.parquet").num_rows == 0
    assert "configs: []" in (exports / "huggingface" / "README.md").read_text()


def test_only_changed_content_is_exported_again_and_replaces_all_files(home):
    options = settings(formats=("reference",))
    first = export_all(home, options)
    stamps = {path: path.stat().st_mtime_ns for path in home.exports.rglob("*")}
    assert export_all(home, options) == first
    assert stamps == {path: path.stat().st_mtime_ns for path in home.exports.rglob("*")}
    (home.exports / "reference" / "stray.txt").write_text("left over")
    home.lake.write(CRITIC_RL, home.lake.read(CRITIC_RL).slice(0, 3))
    (card,) = export_all(home, options)
    assert card.counts == {"critic_rl.jsonl": 3}
    assert not (home.exports / "reference" / "stray.txt").exists()
    assert [path.name for path in home.exports.iterdir()] == ["reference"]


def test_card_has_content_and_origin(home):
    path = export(home, "llamafactory")
    card = json.loads((path / "card.json").read_text())
    assert card["splits"]["prompts: heldout"] == 1
    assert card["splits"]["steps: sft"] == card["splits"]["steps: rl"] == 8
    assert card["sources"]["generators"] == ["pen"]
    assert "critic@1" in card["sources"]["agent prompts"]
    assert card["thresholds"]["theta"] == 0
    assert card["thresholds"]["filter.low_quality"] == 5
    assert card["tables"]["critic_sft"] == home.lake.content_hash(CRITIC_SFT)
    for name, digest in card["files"].items():
        assert hashlib.sha256((path / name).read_bytes()).hexdigest() == digest
    markdown = (path / "README.md").read_text()
    assert "| critic_sft.json | 8 |" in markdown
    assert str(home.local) not in markdown


def test_the_card_says_what_is_simulated(home):
    assert "Simulated" not in (export(home, "huggingface") / "README.md").read_text()
    rows = home.lake.read(ATTEMPTS, ["toy-0000"]).to_pylist()
    drawn = [ATTEMPTS.row(**{**row, "generator": "sketch/generator-1"}) for row in rows]
    home.lake.write(ATTEMPTS, drawn, "toy-0000")
    home.lake.delete(SEQUENCES, "all")
    readme = (export(home, "huggingface") / "README.md").read_text()
    assert "**Simulated** (generators): what is named `sketch`" in readme
    assert yaml.safe_load(readme.split("---\n")[1])["tags"] == ["interleave-foundry", "simulated"]


def test_an_export_that_cannot_be_written_is_one_error_and_publishes_nothing(home):
    options = settings(formats=("llamafactory",))
    rows = home.lake.read(CRITIC_SFT)
    broken = rows.to_pylist()
    broken[0]["images"] = broken[0]["images"][:1]
    home.lake.write(CRITIC_SFT, [CRITIC_SFT.row.model_validate(row) for row in broken])
    message = "has 2 <image> placeholders for 1 images; materialize critic_sft again"
    with pytest.raises(FoundryError, match=message):
        export_all(home, options)
    assert list(home.exports.iterdir()) == []
    home.lake.write(CRITIC_SFT, rows)
    Path(home.images.url(home.lake.read(ATTEMPTS)["image"][0].as_py())).unlink()
    with pytest.raises(BadImageError, match="is missing"):
        export_all(home, options)
    home.exports.rmdir()
    home.exports.write_text("not a folder")
    with pytest.raises(FoundryError, match=r"exports/reference cannot be written: "):
        export_all(home, settings(formats=("reference",)))
