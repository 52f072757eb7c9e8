"""What LLaMA-Factory itself makes of our configurations and rows, in its environment."""

import json
import os
import subprocess
from pathlib import Path
from typing import get_args

import pytest
import yaml

from assets.curation.exports.publisher import export
from assets.curation.preference_pairs import build_critic_dpo
from assets.curation.settings import CurationSettings, PreferenceSettings
from inference.environments import ensure_environment
from schemas.curation import CRITIC_DPO
from tests.assets.curation.curated_world import World
from tests.training.sft.sft_runs import settings, write_export
from tests.training.trainer_parsers import parse_all
from training.base_model import PACKAGED_MODEL
from training.sft.recipe import SftJob, SftSettings, environment, llamafactory_config, read_recipe
from training.sft.rows import DataSetFile
from training.tracking import OFFLINE, Tracker, TrackingSettings
from warehouse import Home

pytestmark = pytest.mark.long
RECIPES = ("sketch", "paper", "reference", "lora")
TRACKERS = {
    kind: TrackingSettings(kind=kind, project="mine", url="http://t" if kind == "mlflow" else None)
    for kind in get_args(Tracker)
}
PARSER = Path(__file__).parent / "parse_config.py"
PICTURELESS = 9  # rows at the end, without a prompt
# Options with which the sketch recipe trains on pairs instead of single answers.
DPO = {"stage": "dpo", "pref_beta": 0.1, "train_sampling_strategy": "random"}


def in_parts(data: Path) -> list[dict]:
    """Rewrite the export as files of four rows, of which the last have no pictures."""
    rows = json.loads((data / "critic_sft.json").read_text())
    (data / "critic_sft.json").unlink()
    for number, row in enumerate(rows):
        row["messages"][1]["content"] = f"<think>row</think>\n<answer>{number}</answer>"
        if number >= len(rows) - PICTURELESS:
            row["messages"][0]["content"] = "Go on."
            row |= {"images": [], "prompt_id": None}
    file = DataSetFile(data, "critic_sft", rows_per_file=4)
    for row in rows:
        file.add(row)
    info = json.loads((data / "dataset_info.json").read_text())
    info["critic_sft"].pop("file_name")
    (data / "dataset_info.json").write_text(
        json.dumps({"critic_sft": {**file.close(), **info["critic_sft"]}})
    )
    return rows


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """An export of several files, and its rows."""
    data = write_export(tmp_path_factory.mktemp("parts") / "export", rows=32)
    return data, in_parts(data)


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Home, Path]:
    world = World(Home(tmp_path_factory.mktemp("pairs") / "home"), image_size=96)
    world.add("a", [(2, False), (9, True)])
    world.add("b", [(9.8, False), (9, True)])
    world.add("c", [(7, False), (2, False), (9, True)])
    home = world.write()
    settings = CurationSettings(preferences=PreferenceSettings(scores=True))
    home.lake.write(CRITIC_DPO, build_critic_dpo(home, settings)[0])
    export(home, settings, "preferences")
    return home, home.exports / "preferences"


def pair_config(data: Path, folder: Path, **options: object) -> dict[str, object]:
    chosen = SftSettings(recipe="sketch", batch=2, options={**DPO, **options})
    job = SftJob(parent=PACKAGED_MODEL, data=data, datasets=["critic_dpo"], settings=chosen)
    return llamafactory_config(job, folder)


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sft")
    data = write_export(folder / "llamafactory", rows=4)
    chosen = {recipe: SftSettings(recipe=recipe) for recipe in RECIPES}
    chosen |= {kind: SftSettings() for kind in TRACKERS}
    chosen["dev"] = SftSettings(recipe="paper", dev_share=0.1, patience=3)
    chosen["misspelt"] = SftSettings(options={"freeze_vision_towers": True})
    return {
        name: llamafactory_config(
            SftJob(
                parent="Qwen/Qwen3-VL-8B-Instruct",
                data=data,
                datasets=["critic_sft"],
                settings=each,
            ),
            folder / name,
            tracking=TRACKERS.get(name, OFFLINE),
        )
        for name, each in chosen.items()
    }


@pytest.fixture(scope="module")
def parsed(configs, parts, exported, tmp_path_factory):
    """All in one process: rows are loaded where a name begins with `rows`."""
    folder = tmp_path_factory.mktemp("loaded")
    cases = configs | {"rows of pairs": pair_config(exported[1], folder)}
    for workers in (1, 2):
        changed = settings(options={"logging_steps": 1, "preprocessing_num_workers": workers})
        job = SftJob(
            parent=PACKAGED_MODEL, data=parts[0], datasets=["critic_sft"], settings=changed
        )
        cases[f"rows by {workers}"] = llamafactory_config(job, folder)
    return parse_all(ensure_environment("sft", "cpu"), PARSER, cases, os.environ)


def test_llamafactory_accepts_every_recipe(configs, parsed):
    for recipe in RECIPES:
        config, understood = configs[recipe], parsed[recipe]
        assert understood["bf16"] is config["bf16"]
        assert understood["frozen"] == [recipe != "sketch"] * 2
        assert understood["gradient_checkpointing"] is (recipe != "sketch")
        assert understood["warmup"] == (5 if recipe == "sketch" else 10)
        assert understood["zero"] == (3 if recipe in ("paper", "reference") else None)
        assert understood["type"] == ("lora" if recipe == "lora" else "full")


def test_llamafactory_knows_every_tracker(configs, parsed):
    for kind in TRACKERS:
        understood = parsed[kind]
        assert understood["trackers"] == ([] if kind == "none" else [kind])
        assert understood["unknown_trackers"] == []
        assert understood["run"] == ["mine", configs[kind]["run_name"]]


def test_llamafactory_evaluates_at_every_checkpoint(parsed):
    understood = parsed["dev"]
    assert understood["evaluation"] == ["steps", 200.0, ["critic_sft_dev"], 3]
    assert understood["best"] == [True, "eval_loss", False]


def test_llamafactory_rejects_unknown_options(parsed):
    """So that the test above can fail."""
    assert "freeze_vision_towers" in parsed["misspelt"]["error"]


def test_data_sets_of_several_files_are_read_in_order(parts, parsed):
    """In one process and in two, where the second sees no picture."""
    data, rows = parts
    assert len(list((data / "critic_sft").glob("*.json"))) == 8
    for workers in (1, 2):
        result = parsed[f"rows by {workers}"]
        numbers = [int(text.split("<answer>")[1].split("<")[0]) for [text] in result["answers"]]
        assert numbers == list(range(len(rows)))
        assert [len(images or ()) for images in result["images"]] == [
            len(row["images"]) for row in rows
        ]


def test_pairs_for_dpo_are_loaded_with_their_images(exported, parsed):
    loaded, rows = parsed["rows of pairs"], exported[0].lake.read(CRITIC_DPO).to_pylist()
    assert {row["source"] for row in rows} == {"score_verdict", "score_prompt"}
    assert len(loaded["answers"]) == len(rows) == 4
    for row, pair, images in zip(rows, loaded["answers"], loaded["images"], strict=True):
        for side, text in zip(("chosen", "rejected"), pair, strict=True):
            expected = row[side]["content"].split("<answer>")[1]
            assert text.split("<answer>")[1].split("</answer>")[0] == expected.split("</answer>")[0]
        assert [Path(image).stem for image in images] == row["images"]
    assert min(loaded["tokens"]) > 2 * 9  # nine visual tokens an image


def test_llamafactory_trains_on_the_pairs(exported, tmp_path):
    _, folder = exported
    python = ensure_environment("sft", "cpu")
    given = pair_config(folder, tmp_path, max_steps=2, save_steps=2)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(given))
    recipe = read_recipe(SftSettings(recipe="sketch"))
    subprocess.run(
        [str(python.parent / "llamafactory-cli"), "train", str(path)],
        env={**os.environ, **environment(recipe, python, tmp_path)},
        cwd=tmp_path,
        check=True,
    )
    results = json.loads((Path(str(given["output_dir"])) / "train_results.json").read_text())
    assert results["train_loss"] > 0
    assert list(Path(str(given["output_dir"])).glob("*.safetensors"))
