"""A file of prompts as a pack: imported by command, and run as a lineage."""

import json

import pytest

from assets.core.foundry import FoundryResource
from assets.curation.exports.folder import read_card
from assets.prompts.bank import open_bank
from assets.prompts.pack_loader import load_pack
from assets.prompts.settings import BankSettings
from dagster_project.instance import open_instance
from dagster_project.run import run_lineage
from schemas import FoundryError
from schemas.prompts import PROMPTS
from schemas.trajectories import TRAJECTORIES
from tests.assets.imports import files
from tests.helpers.command import interleave
from tests.helpers.profiles import changed_profile

TEXTS = [
    "Show how to build a snowman in 4 steps",
    "A red house beside a tree",
    "Draw a yellow sun above a blue house",
    "A cat walks to a house",
    "Grow a red flower step by step",
    "A red house beside a tree",
    "a red house, beside a tree!",
    "   ",
    "Draw a green tree at the left",
]
DISTINCT = 6


STAGES = ("taxonomy", "vocabulary", "templates", "prompts", "plans", "trajectories", "scores")


@pytest.fixture
def imported(tmp_path, capsys):
    """Imports prompts by command; returns the pack's folder."""

    def run(texts):
        file, folder = files.prompts(tmp_path, ".jsonl", texts), tmp_path / "mine"
        interleave(capsys, "import", "prompts", file, "--to", folder)
        return folder

    return run


def test_usable_prompts_become_a_pack(tmp_path, capsys):
    for suffix in (".jsonl", ".csv", ".parquet"):
        file, folder = files.prompts(tmp_path, suffix, TEXTS), tmp_path / "packs" / "mine"
        options = ("--to", folder, "--license", "mit", "--reader", "sketch")
        done = interleave(capsys, "import", "prompts", file, *options)
        assert "7 prompts in" in done.stdout
        assert "2 rejected, such as row 6: an earlier row" in done.stdout
        loaded = load_pack(folder)
        assert [prompt.text for prompt in loaded.prompts] == [*TEXTS[:5], TEXTS[6], TEXTS[8]]
        assert loaded.taxonomy.reader == "sketch"
        assert "licence: mit" in (folder / "pack.yaml").read_text()
        lines = (folder / "rejected.jsonl").read_text().splitlines()
        assert [json.loads(line)["row"] for line in lines] == [6, 8]


def test_a_bank_has_no_near_duplicates_and_keeps_its_order(imported):
    folder = imported(TEXTS)
    bank = open_bank(load_pack(folder), BankSettings(shard_size=4, heldout_share=0.4), 8)
    assert bank.near_duplicates == 1
    assert [row.text for row in bank.prompts] == [*TEXTS[:5], TEXTS[8]]
    assert [row.shard for row in bank.prompts] == ["mine-0000"] * 4 + ["mine-0001"] * 2
    assert len({row.prompt_id for row in bank.prompts}) == DISTINCT
    assert {row.split for row in bank.prompts} == {"train", "heldout"}
    with pytest.raises(FoundryError, match="6 distinct prompts: 2 shards of 4, and 3 were asked"):
        open_bank(load_pack(folder), BankSettings(shard_size=4), 12)


def test_a_prompt_is_not_repeated_because_it_requests_texts_as_well(imported):
    texts = ["Fold a crane", "fold a crane both visually and textually", "Fold a boat"]
    texts.append("Fold a boat. Output each image together with a concise text caption.")
    bank = open_bank(load_pack(imported(texts)), BankSettings(shard_size=2), 2)
    assert [row.text for row in bank.prompts] == [texts[0], texts[2]]


def test_categories_and_images_come_with_the_prompts(tmp_path, capsys, home):
    images = files.write_images(tmp_path)
    rows = [
        {"q": "Fold this <image>", "kind": "Daily Life", "pictures": images[1:2]},
        {"q": "And this", "kind": "Art", "pictures": images[2]},
        {"q": "Lost", "kind": "Art", "pictures": "/x/lost.png"},
    ]
    file = tmp_path / "own.json"
    file.write_text(json.dumps(rows))
    folder = tmp_path / "own"
    columns = ("--text", "q", "--image", "pictures", "--category", "kind")
    done = interleave(capsys, "import", "prompts", file, "--to", folder, *columns)
    assert "1 rejected, such as row 3: image /x/lost.png is not below" in done.stdout
    bank = open_bank(load_pack(folder), BankSettings(shard_size=2), 2)
    assert [(row.category, len(row.input_images)) for row in bank.prompts] == [
        ("daily-life", 1),
        ("art", 1),
    ]


def test_a_damaged_line_is_named(imported):
    folder = imported(TEXTS)
    with (folder / "prompts.jsonl").open("a") as file:
        file.write('{"txt": "A tree"}\n')
    with pytest.raises(FoundryError, match=r"prompts\.jsonl:8: "):
        load_pack(folder)


@pytest.mark.slow
def test_a_lineage_runs_on_it(tmp_path, capsys, monkeypatch):
    images = files.write_images(tmp_path)
    file = files.prompts(tmp_path, ".jsonl", TEXTS)
    with file.open("a") as lines:
        lines.write(json.dumps({"user_input": "Add a red ball", "user_input_image": images[0]}))
    folder = tmp_path / "mine"
    interleave(
        capsys, "import", "prompts", file, "--to", folder, "--reader", "sketch", "--license", "mit"
    )
    sections = {"pack": str(folder), "banks": {}, "sketch": {"picture_size": 96}}
    sections["bank"] = {"shard_size": 10, "heldout_share": 0.4}
    path = changed_profile(tmp_path, **sections)
    foundry = FoundryResource(profile=str(path), root=str(tmp_path / "lake"))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with open_instance(foundry.home) as instance:
        run_lineage(foundry, instance, shards=1, select=[*STAGES, "steps", "exports"])
    rows = foundry.rows(PROMPTS)
    assert [row.text for row in rows] == [*TEXTS[:5], TEXTS[8], "Add a red ball"]
    assert {row.split for row in rows} == {"train", "heldout"}
    assert all(foundry.home.images.exists(sha) for row in rows for sha in row.input_images)
    card = read_card(foundry.home.exports / "llamafactory")
    assert card["sources"]["prompt files"] == ["Prompts of prompts.jsonl; licence: mit"]
    statuses = {row.prompt_id: row.status for row in foundry.rows(TRAJECTORIES)}
    assert set(statuses) == {row.prompt_id for row in rows}
    assert sum(status == "complete" for status in statuses.values()) >= DISTINCT - 2
