"""The layout of the official scorer, written and read back."""

import json
from pathlib import Path

import pytest
from PIL import Image

from assets.benchmarks.benchmark import AnswerStep
from assets.benchmarks.opening.items import OpeningItem, load
from assets.benchmarks.opening.layout import OutputFolder
from schemas.errors import FoundryError
from warehouse import EncodedImage

BLUE = EncodedImage.of(Image.new("RGB", (8, 8), "blue"))
ANSWER = (AnswerStep("It found berries.", BLUE), AnswerStep("It slept."), AnswerStep("", BLUE))


@pytest.fixture
def item(benchmark_folder: Path) -> OpeningItem:
    return load(benchmark_folder)[0]


def test_what_is_written_is_read_back(tmp_path: Path, item: OpeningItem) -> None:
    folder = OutputFolder(tmp_path, "ours")
    folder.write(item, ANSWER)
    again = OutputFolder.open(tmp_path / "ours_output")
    assert (again.system, again.item_ids()) == ("ours", ["0301007"])
    assert again.read("0301007") == ANSWER
    assert again.read("0301008") is None


def test_the_file_repeats_the_item_and_names_pictures(tmp_path: Path, item: OpeningItem) -> None:
    content = json.loads(OutputFolder(tmp_path, "ours").write(item, ANSWER).read_text())
    original = item.model_dump(mode="json")
    assert {**content, "conversations": content["conversations"][:1]} == {
        **original,
        "conversations": original["conversations"][:1],
    }
    assert content["conversations"][1]["output"] == [
        {"text": "It found berries.", "image": "0301007-o-0.png"},
        {"text": "It slept.", "image": None},
        {"text": "", "image": "0301007-o-2.png"},
    ]


def test_answers_of_others_are_read_by_the_picture_s_name(
    tmp_path: Path, item: OpeningItem
) -> None:
    path = OutputFolder(tmp_path, "theirs").write(item, ANSWER)
    text = path.read_text().replace('"0301007-o', '"./gen/theirs_output/0301007-o')
    path.with_suffix(".jsonl").write_text(text.replace("It slept.", "It slept. <image>"))
    path.unlink()
    assert OutputFolder(tmp_path, "theirs").read("0301007") == ANSWER


def test_an_empty_picture_s_name_is_none(tmp_path: Path, item: OpeningItem) -> None:
    path = OutputFolder(tmp_path, "theirs").write(item, ANSWER[1:2])
    path.write_text(path.read_text().replace("null", '""'))
    assert OutputFolder(tmp_path, "theirs").read("0301007") == ANSWER[1:2]


def test_what_is_missing_or_damaged_is_named(tmp_path: Path, item: OpeningItem) -> None:
    folder = OutputFolder(tmp_path, "ours")
    path = folder.write(item, ANSWER)
    (folder.path / "0301007-o-2.png").unlink()
    with pytest.raises(FoundryError, match=r"0301007-o-2.png: picture of item 0301007 cannot"):
        folder.read("0301007")
    path.write_text('{"conversations": []}')
    with pytest.raises(FoundryError, match=r"0301007.json: conversations"):
        folder.read("0301007")


def test_folders_must_be_named_like_the_official_ones(tmp_path: Path) -> None:
    with pytest.raises(FoundryError, match="is not a folder"):
        OutputFolder.open(tmp_path / "none")
    with pytest.raises(FoundryError, match="must be named <system>_output"):
        OutputFolder.open(tmp_path)
    with pytest.raises(FoundryError, match="usable as a folder's name"):
        OutputFolder(tmp_path, "../ours")


def test_real_answers(real_folder: Path) -> None:
    folders = [OutputFolder.open(path) for path in sorted((real_folder / "gen_outputs").iterdir())]
    answers = {(f.system, i): f.read(i) or () for f in folders for i in f.item_ids()}
    assert {key: len(steps) for key, steps in answers.items()} == {
        ("GPT-4o+DALL-E3", "0301096"): 2,
        ("GPT-4o+DALL-E3", "0302005"): 5,
        ("SEED-LLaMA", "0302005"): 7,
        ("Show-o", "0301096"): 2,
    }
    assert all(step.image and step.text for steps in answers.values() for step in steps)
