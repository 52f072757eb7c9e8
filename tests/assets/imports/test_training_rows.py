"""`interleave import` of training rows, and what trainers then read."""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from assets.checkpoints.recipes import exported_data
from assets.curation.exports.folder import read_card
from assets.curation.exports.publisher import export
from assets.curation.settings import CurationSettings
from assets.curation.sources import TrainingSources
from inference.environments import ensure_environment
from schemas import FoundryError
from schemas.curation import CRITIC_RL, CRITIC_SFT, IMPORTS, PLANNER_SFT, SEQUENCES
from tests.assets.curation.test_exports import curated_folder, linked_copy
from tests.assets.imports import files
from tests.helpers.command import interleave
from tests.training.trainer_parsers import parse_all
from training.base_model import PACKAGED_MODEL
from training.sft.recipe import SftJob, SftSettings, llamafactory_config

__all__ = ["curated_folder"]  # a fixture


@pytest.fixture
def imported(home, tmp_path, capsys):
    """Imports a file of a kind by command; returns its output."""

    def run(kind, *more):
        file = getattr(files, kind.replace("-", "_"))(tmp_path)
        return interleave(capsys, "import", kind, file, "--home", home.root, *more)

    return run


def rows(home, name):
    return home.lake.read(IMPORTS, [name]).to_pylist()


def rejected(home, name):
    lines = (home.local / "imports" / f"{name}-rejected.jsonl").read_text().splitlines()
    return {line["row"]: line["reason"] for line in map(json.loads, lines)}


def settings(**mix):
    return CurationSettings.model_validate({"exports": {"mix": mix}})


def test_plans_are_stored_with_their_origin_and_unusable_rows_rejected(home, imported):
    done = imported("planner-sft", "--license", "cc-by-4.0", "--name", "released")
    assert done.returncode == 0 and "2 rows of planner_sft as released" in done.stdout
    plain, continued = rows(home, "released")
    assert plain["messages"][1]["content"] == files.PLAN
    assert (plain["row_id"], plain["number"], plain["licence"]) == ("released:1", 1, "cc-by-4.0")
    assert plain["source"] == "planner_sft.json" and len(plain["file_sha256"]) == 64
    [image] = continued["images"]
    assert home.images.get(image).image.getpixel((0, 0)) == (255, 165, 0)
    assert "4 rejected, such as row 3: 2 placeholders <image>, and 1 images" in done.stdout
    reasons = rejected(home, "released")
    assert list(reasons) == [3, 4, 5, 6]
    assert "cannot be read" in reasons[4] and "lost.png is not below" in reasons[5]
    assert "one user turn and one assistant turn" in reasons[6]


def test_ground_truth_of_the_reward_is_read(home, imported):
    done = imported("critic-rl")
    assert "2 rows of critic_rl" in done.stdout
    first, second = rows(home, "critic_rl")
    white, before = first["images"]
    assert home.images.get(white).is_white and home.images.get(white).image.size == (64, 64)
    assert second["images"][0] == before
    assert second["evaluation"] == {"success": True, "semantics": 9.0, "quality": 8.0}
    assert (first["rewritten_prompt"], second["number"]) == ("", 3)
    assert set(rejected(home, "critic_rl")) == {2, 4, 5}


def test_importing_again_changes_nothing(home, imported):
    imported("critic-sft")
    before = home.lake.content_hash(IMPORTS, "critic_sft")
    done = imported("critic-sft")
    assert "(unchanged)" in done.stdout
    assert home.lake.content_hash(IMPORTS, "critic_sft") == before


def test_mistakes_are_one_line(home, imported, capsys, tmp_path):
    imported("critic-sft", "--name", "released")
    done = imported("planner-sft", "--name", "released")
    assert done.returncode == 1 and "import released has rows of critic_sft" in done.stderr
    done = interleave(capsys, "import", "critic-sft", tmp_path / "no.json", "--home", home.root)
    assert done.returncode == 1 and "no file" in done.stderr
    (tmp_path / "empty.jsonl").write_text("")
    done = interleave(capsys, "import", "critic-rl", tmp_path / "empty.jsonl", "--home", home.root)
    assert done.returncode == 1 and "has no usable row; it is empty" in done.stderr


@pytest.mark.long
def test_llamafactory_loads_imported_rows_alone(home, imported, tmp_path):
    """By its own loader, answers and images as they were."""
    imported("planner-sft")
    mix = settings(planner_sft={"planner_sft": 1})
    for table in (PLANNER_SFT, CRITIC_SFT, SEQUENCES):
        home.lake.write(table, [])
    export(home, mix, "llamafactory")
    job = SftJob(
        parent=PACKAGED_MODEL,
        data=home.exports / "llamafactory",
        datasets=["planner_sft"],
        settings=SftSettings(recipe="sketch"),
    )
    parser = Path(__file__).parents[2] / "training" / "sft" / "load_rows.py"
    cases = {"planner_sft": llamafactory_config(job, tmp_path)}
    python = ensure_environment("sft", "cpu")
    loaded = parse_all(python, parser, cases, os.environ)["planner_sft"]
    assert len(loaded["answers"]) == 2
    assert all("Draw the head." in text for [text] in loaded["answers"])
    assert sorted(len(images or ()) for images in loaded["images"]) == [0, 1]


class TestMix:
    @pytest.fixture
    def home(self, curated_folder, tmp_path):
        return linked_copy(curated_folder, tmp_path / "home")

    @pytest.fixture
    def mixed(self, home, imported):
        """Critic samples of ours and imported ones."""
        imported("critic-sft", "--license", "mit")
        imported("critic-rl")
        return home

    def exported(self, home, mix):
        card = export(home, settings(critic_sft=mix), "llamafactory")
        folder = home.exports / "llamafactory"
        samples = json.loads((folder / "critic_sft.json").read_text())
        assert len(samples) == card.counts["critic_sft.json"]
        assert all((folder / image).is_file() for row in samples for image in row["images"])
        return [row["row_id"] for row in samples]

    def test_weights_say_how_often_rows_occur(self, mixed):
        ours = sorted(mixed.lake.read(CRITIC_SFT)["row_id"].to_pylist())
        imports = [f"critic_sft:{number}" for number in range(1, 5)]
        assert self.exported(mixed, {"critic_sft": 1}) == imports
        assert sorted(self.exported(mixed, {"ours": 1, "critic_sft": 1})) == ours + imports
        twice = self.exported(mixed, {"ours": 0, "critic_sft": 2})
        assert sorted(twice) == sorted(imports * 2)
        half = self.exported(mixed, {"critic_sft": 0.5})
        assert set(half) < set(imports) and half == self.exported(mixed, {"critic_sft": 0.5})

    def test_cards_and_versions_say_so(self, mixed):
        alone, both = settings(critic_sft={"critic_sft": 1}), CurationSettings()
        card = export(mixed, alone, "llamafactory")
        assert "critic_sft (critic_sft.json; licence: mit; 4 rows, weight 1)" in card.markdown()
        data = exported_data(TrainingSources(mixed, alone), "llamafactory", CRITIC_SFT)
        assert not data.outdated and data.rows == 4
        ours = exported_data(TrainingSources(mixed, both), "llamafactory", CRITIC_SFT)
        assert ours.version != data.version and ours.outdated == ["critic_sft"]
        export(mixed, both, "llamafactory")
        assert not ours.outdated and data.outdated == ["critic_sft"]
        assert "imports" not in read_card(ours.folder)["sources"]

    def test_verl_gets_the_profiles_question(self, mixed):
        export(mixed, settings(critic_rl={"ours": 1, "critic_rl": 1}), "verl")
        table = pq.read_table(mixed.exports / "verl" / "critic_rl.parquet").to_pylist()
        assert len(table) == mixed.lake.rows(CRITIC_RL) + 2
        imported = [row for row in table if row["extra_info"]["row_id"] == "critic_rl:3"]
        [question] = imported[0]["prompt"]
        assert "Add a red hat." in question["content"] and question["role"] == "user"
        assert imported[0]["reward_model"]["ground_truth"]["semantics"] == 9.0
        assert len(imported[0]["images"]) == 2

    def test_a_wrong_name_is_one_line_and_the_hub_gets_ours_alone(self, mixed):
        reasons = {
            "nothing": "no import nothing in",
            "critic_rl": "import critic_rl has rows of critic_rl",
        }
        for name, reason in reasons.items():
            with pytest.raises(FoundryError, match=f"curation.exports.mix.critic_sft: {reason}"):
                export(mixed, settings(critic_sft={name: 1}), "llamafactory")
        card = export(mixed, settings(critic_sft={"critic_sft": 1}), "huggingface")
        assert card.counts["critic_sft"] == mixed.lake.rows(CRITIC_SFT) and not card.mix
