"""Pairs for DPO, read by LLaMA-Factory's own loader and trained on by it."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from assets.curation.exports.publisher import export
from assets.curation.preference_pairs import build_critic_dpo
from assets.curation.settings import CurationSettings, PreferenceSettings
from inference.environments import ensure_environment
from schemas.curation import CRITIC_DPO
from tests.assets.curation.curated_world import World
from tests.training.trainer_parsers import parse_all
from training.base_model import PACKAGED_MODEL
from training.sft.recipe import SftJob, SftSettings, environment, llamafactory_config, read_recipe
from warehouse import Home

pytestmark = pytest.mark.slow
PARSER = Path(__file__).parent / "load_rows.py"
# Options with which the sketch recipe trains on pairs instead of single answers.
DPO = {"stage": "dpo", "pref_beta": 0.1, "train_sampling_strategy": "random"}


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


def config(data: Path, folder: Path, **options: object) -> dict[str, object]:
    settings = SftSettings(recipe="sketch", batch=2, options={**DPO, **options})
    job = SftJob(parent=PACKAGED_MODEL, data=data, datasets=["critic_dpo"], settings=settings)
    return llamafactory_config(job, folder)


def test_llamafactory_loads_the_pairs_with_their_images(exported, tmp_path):
    home, folder = exported
    python = ensure_environment("sft", "cpu")
    cases = {"critic_dpo": config(folder, tmp_path)}
    loaded = parse_all(python, PARSER, cases, os.environ)["critic_dpo"]
    rows = home.lake.read(CRITIC_DPO).to_pylist()
    assert {row["source"] for row in rows} == {"score_verdict", "score_prompt"}
    assert len(loaded["answers"]) == len(rows) == 4
    for row, pair, images in zip(rows, loaded["answers"], loaded["images"], strict=True):
        for side, text in zip(("chosen", "rejected"), pair, strict=True):
            expected = row[side]["content"].split("<answer>")[1]
            assert text.split("<answer>")[1].split("</answer>")[0] == expected.split("</answer>")[0]
        assert [Path(image).stem for image in images] == row["images"]
    assert min(loaded["tokens"]) > 2 * 9  # nine visual tokens an image


@pytest.mark.long
def test_llamafactory_trains_on_the_pairs(exported, tmp_path):
    _, folder = exported
    python = ensure_environment("sft", "cpu")
    given = config(folder, tmp_path, max_steps=2, save_steps=2)
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
