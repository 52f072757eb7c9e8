"""WEAVEBench: files, layout, what a judge sees of each turn, and the official numbers."""

import json

import pytest

from assets.benchmarks.benchmark import NOTHING_ASKED, AnswerStep, ItemMetrics
from assets.benchmarks.weave import Weave
from tests.assets.benchmarks.official_files import (
    BLUE,
    RED,
    error_of_one_line,
    real_files,
    write_weave,
)

ANSWER = (AnswerStep("A hat.", RED), AnswerStep("", BLUE), AnswerStep("Done."))


@pytest.fixture
def weave(tmp_path):
    return Weave(write_weave(tmp_path / "WEAVE"))


def test_a_conversation_is_one_request_for_its_pictures(weave):
    fusion, maze = weave.items
    assert (fusion.item_id, fusion.group, maze.group) == ("0", "creation", "game")
    assert fusion.text.splitlines() == [
        "Image #1: <image>",
        "Image #2: <image>",
        "Draw 2 images, in this order, a step each:",
        "Image #4: Put the hat of Image #2 on the cat of Image #1.",
        "Image #3: Make it night in Image #4.",
    ]
    assert [path.name for path in fusion.image_files] == ["0_1.jpg", "0_2.jpg"]


def test_a_judge_sees_a_turn_beside_official_pictures_and_earlier_ones(weave):
    calls = {call.name: call for call in weave.calls(weave.items[0], ANSWER, {})}
    assert set(calls) == {
        f"{name}-{turn}"
        for name in ("key_point", "visual_consistency", "image_quality")
        for turn in (1, 2)
    }
    first, second = calls["key_point-1"], calls["visual_consistency-2"]
    assert "1. The hat is that of [image 2]\n2. The cat wears it" in first.text
    official = first.images[1]
    assert first.images == (RED, official) and official.image.size == (40, 20)
    assert "1. As [image 2], at night\n2. As [image 3]" in second.text
    assert second.images[:2] == (BLUE, RED) and second.images[2].image.size == (40, 20)
    assert calls["image_quality-2"].images == (BLUE,)
    assert "[image" not in calls["image_quality-2"].text
    assert first.read("Fine.\nScore: 10") == 10
    assert first.read("Score: 11") is first.read("8") is None


def values(turn, key_point, consistency, quality):
    names = ("key_point", "visual_consistency", "image_quality")
    return {f"{n}-{turn}": v for n, v in zip(names, (key_point, consistency, quality), strict=True)}


def test_turns_without_a_picture_count_as_nothing(weave):
    item = weave.items[0]
    one = weave.calls(item, ANSWER[:1], {})
    assert [call.name.rpartition("-")[2] for call in one] == ["1", "1", "1"]
    found = weave.metrics(item, values(1, 10, 8, 4))
    expected = {"key_point": 0.5, "visual_consistency": 0.4, "image_quality": 0.2}
    assert found == pytest.approx({"overall": 0.25 + 0.08 + 0.06, **expected})
    assert weave.quality_by_step(item, values(1, 10, 8, 4)) == {1: 1, 2: 0}
    assert set(weave.metrics(item, {NOTHING_ASKED: True}).values()) == {0}
    unread = weave.metrics(item, values(1, 10, None, 4))
    assert unread["visual_consistency"] is unread["overall"] is None and unread["key_point"] == 0.5


def test_numbers_are_means_over_turns_with_the_official_rounding(tmp_path):
    path = write_weave(tmp_path) / "test" / "test.json"
    rows = json.loads(path.read_text())
    rows[1]["chats"] = rows[1]["chats"][:4]  # one turn, where the other has two
    path.write_text(json.dumps(rows))
    weave = Weave(tmp_path)
    fusion, maze = weave.items
    judged = (fusion, values(1, 9, 7, 5) | values(2, 7, 7, 5)), (maze, values(1, 1, 7, 5))
    items = [ItemMetrics(i.item_id, i.group, weave.metrics(i, v)) for i, v in judged]
    found = weave.aggregate(items)
    assert found["key_point"] == 0.567  # (9 + 7 + 1) / 30
    assert found["overall"] == round(0.5 * 0.567 + 0.2 * 0.7 + 0.3 * 0.5, 3)
    assert found["creation/key_point"] == 0.8 and found["game/overall"] == 0.34
    assert found["logic/overall"] is None


def test_pictures_have_the_official_names(weave, tmp_path):
    folder = weave.write_answers(tmp_path, "ours", [("0", ANSWER), ("1", ANSWER[:1])])
    assert sorted(path.name for path in folder.iterdir()) == ["0_3.jpg", "0_4.jpg", "1_4.jpg"]
    pictures = {name: [step.image for step in read] for name, read in weave.read_answers(folder)}
    assert pictures == {"0": [RED, BLUE], "1": [RED]}
    weave.write_answers(tmp_path, "ours", [("0", ())])
    assert [name for name, _ in weave.read_answers(folder)] == ["1"]


def test_missing_files_are_one_line(tmp_path):
    folder = write_weave(tmp_path)
    (folder / "test" / "imgs" / "1_2.jpg").unlink()
    with error_of_one_line(r"item 1: its picture imgs/1_2.jpg is missing; unpack"):
        Weave(folder)
    path = folder / "test" / "test.json"
    path.write_text(json.dumps([{"idx": 0, "domain": "maze", "images": [], "chats": []}]))
    with error_of_one_line("item 1: chats: .*; copy the official file again"):
        Weave(folder)


def test_real_files():
    items = Weave(real_files("INTERLEAVE_WEAVE")).items
    assert {item.group for item in items} == {"science", "creation", "logic", "game"}
