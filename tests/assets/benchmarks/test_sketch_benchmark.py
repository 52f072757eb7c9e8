"""Exact judging of right and wrong answers, and items that follow from a seed."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random

import pytest

from assets.benchmarks.benchmark import Answer, AnswerStep, Item, ItemMetrics
from assets.benchmarks.sketch import SketchBenchmark
from assets.benchmarks.sketch_tasks import SHAPES, SKILLS, Requirement, Task, write_task
from inference.sketch_world.object_catalog import KINDS
from inference.sketch_world.perception import perceive
from inference.sketch_world.renderer import render
from inference.sketch_world.request_parser import RequestText
from inference.sketch_world.scene import Scene, Thing
from inference.sketch_world.story_catalog import choose_story
from schemas.errors import FoundryError
from warehouse import EncodedImage


def _answer(scenes: Sequence[Scene]) -> Answer:
    return tuple(AnswerStep("", EncodedImage.of(render(scene, 96))) for scene in scenes)


def _success(benchmark: SketchBenchmark, item: Item, answer: Answer) -> float | None:
    return benchmark.metrics(item, benchmark.judge(item, answer))["success"]


def _item(benchmark: SketchBenchmark, skill: str) -> Item:
    return next(item for item in benchmark.items if item.group == skill)


def _spoil(skill: str, scenes: Sequence[Scene], broken: Requirement) -> list[Scene]:
    """The answer with the mistake that the skill is about."""
    *earlier, last = scenes
    cells: dict[int, Thing | None] = dict(last.cells)
    meant = [cell for cell, thing in last.cells.items() if broken.kind in (None, thing.kind)]
    match skill:
        case "colour":
            thing = last.cells[meant[0]]
            others = [c for c in KINDS[thing.kind].colours if c != thing.colour]
            cells[meant[0]] = Thing(thing.kind, others[0])
        case "position":
            outside = next(c for c in range(9) if c not in broken.cells)
            cells[meant[0]], moved = cells.get(outside), cells[meant[0]]
            cells[outside] = moved
        case "count":
            del cells[meant[0]]
        case "memory":
            del cells[min(cells, key=list(last.cells).index)]
        case "negation":
            free = next(c for c in range(9) if c not in cells)
            cells[free] = Thing(broken.kind or "umbrella", "red")
    return [*earlier, Scene(last.background, {c: t for c, t in cells.items() if t})]


def _decisive(skill: str, requirements: Sequence[Requirement]) -> Requirement:
    if skill == "negation":
        nothing = [each for each in requirements if each.count == 0 or each.kind is None]
        return nothing[-1]
    return max(requirements, key=lambda each: (each.kind is not None, each.count))


@pytest.mark.parametrize(("shape", "difficulty"), list(product(SHAPES, (1, 4))))
def test_only_a_right_answer_succeeds(shape: str, difficulty: int, tmp_path: Path) -> None:
    benchmark = SketchBenchmark.open(shape, tmp_path, difficulty=difficulty, items=len(SKILLS))
    assert [item.group for item in benchmark.items] == list(SKILLS)
    for item in benchmark.items:
        task = item.official
        right = benchmark.metrics(item, benchmark.judge(item, _answer(task.expected)))
        assert right == {"success": 1.0, "met": 1.0}, item
        spoilt = _spoil(item.group, task.expected, _decisive(item.group, task.requirements))
        wrong = benchmark.metrics(item, benchmark.judge(item, _answer(spoilt)))
        assert wrong["success"] == 0.0, item
        assert 0 < (wrong["met"] or 0) < 1, item
        assert _success(benchmark, item, (AnswerStep("no picture"),)) == 0.0


def test_quality_of_single_steps(tmp_path: Path) -> None:
    benchmark = SketchBenchmark.open("interleaved", tmp_path, items=10)
    for item in benchmark.items:
        expected = item.official.expected
        right = benchmark.quality_by_step(item, benchmark.judge(item, _answer(expected)))
        assert right and set(right.values()) == {1.0} and max(right) <= len(expected)
        empty = [Scene(expected[0].background, {})] * len(expected)
        drawn = benchmark.quality_by_step(item, benchmark.judge(item, _answer(empty)))
        assert drawn.keys() == right.keys() and min(drawn.values()) < 1
    assert any(
        len(benchmark.quality_by_step(i, benchmark.judge(i, ()))) > 1 for i in benchmark.items
    )


def test_things_of_an_earlier_picture_may_not_be_forgotten(tmp_path: Path) -> None:
    benchmark = SketchBenchmark.open("interleaved", tmp_path, items=len(SKILLS))
    item = _item(benchmark, "memory")
    first, *others = item.official.expected
    forgetful = Scene(others[0].background, dict(list(others[0].cells.items())[1:]))
    assert _success(benchmark, item, _answer([first, forgetful, *others[1:]])) == 0.0


def test_another_background_does_not_succeed(tmp_path: Path) -> None:
    benchmark = SketchBenchmark.open("inferred", tmp_path, items=1)
    (scene,) = benchmark.items[0].official.expected
    elsewhere = _answer([Scene("night sky", scene.cells)])
    assert _success(benchmark, benchmark.items[0], elsewhere) == 0.0


def test_items_follow_from_the_seed(tmp_path: Path) -> None:
    for shape in SHAPES:
        first, again, other = (
            SketchBenchmark.open(shape, tmp_path / shape / str(n), seed, items=5)
            for n, seed in enumerate((0, 0, 1))
        )
        pairs = zip(first.items, other.items, strict=True)
        assert all(a.official.expected != b.official.expected for a, b in pairs)
        for one, same in zip(first.items, again.items, strict=True):
            assert one.official == same.official
            files = zip(one.image_files, same.image_files, strict=True)
            assert all(a.read_bytes() == b.read_bytes() for a, b in files)
            assert len(one.image_files) == one.text.count("<image>")


def _tasks(shape: str, difficulty: int, count: int) -> list[Task]:
    skills = SKILLS * (count // len(SKILLS))
    return [write_task(shape, skill, difficulty, Random(n)) for n, skill in enumerate(skills)]


def test_difficulty_raises_the_number_of_things() -> None:
    def size(shape: str, difficulty: int) -> int:
        tasks = _tasks(shape, difficulty, 40)
        return sum(len(scene.cells) for t in tasks for scene in (*t.given, *t.expected))

    for shape in SHAPES:
        sizes = [size(shape, difficulty) for difficulty in (1, 2, 3, 4)]
        assert sizes == sorted(set(sizes)), shape


def test_requests_are_about_things_and_no_story() -> None:
    """Else the sketch planner would tell the story instead."""
    for shape, difficulty in product(SHAPES, (1, 4)):
        for task in _tasks(shape, difficulty, 100):
            text = RequestText(task.text)
            assert choose_story(text) is None and not text.wants_words_only, task.text


def test_given_pictures_are_those_of_the_task(tmp_path: Path) -> None:
    """Also where an earlier release wrote other pictures for an item of the same id."""
    for task in [item.official for item in SketchBenchmark.open("edits", tmp_path, items=2).items]:
        (item,) = SketchBenchmark("edits", tmp_path, {"same id": task}).items
        shown = [perceive(EncodedImage(file.read_bytes()).image).scene for file in item.image_files]
        assert tuple(shown) == task.given


def test_answers_round_trip(tmp_path: Path) -> None:
    benchmark = SketchBenchmark.open("edits", tmp_path / "given", items=2)
    one, two = benchmark.by_id
    expected = benchmark.items[0].official.expected
    answers = {one: (*_answer(expected), AnswerStep("and a text")), two: ()}
    path = benchmark.write_answers(tmp_path, "mine", answers.items())
    assert dict(benchmark.read_answers(path)) == answers
    (path / f"{one}-1.png").unlink()
    with pytest.raises(FoundryError, match="cannot be read"):
        list(benchmark.read_answers(path))


def test_success_by_skill() -> None:
    items = [ItemMetrics(str(n), "count", {"success": n / 2, "met": 1.0}) for n in (0, 1, 2)]
    benchmark = SketchBenchmark("edits", Path(), {})
    numbers = benchmark.aggregate(items)
    assert (numbers["success"], numbers["met"], numbers["count/success"]) == (0.5, 1.0, 0.5)
    assert numbers["colour/success"] is None


def test_a_difficulty_that_there_is_not_is_named(tmp_path: Path) -> None:
    with pytest.raises(FoundryError, match="difficulty 5: choose 1 to 4"):
        SketchBenchmark.open("edits", tmp_path, difficulty=5)
