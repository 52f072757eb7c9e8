"""Benchmarks of the sketch world, judged exactly: for a laptop and for CI.

Their shapes are those of the field's benchmarks: interleaved answers from text (UEval),
continuation of given pictures (CoMM), pictures that must be inferred (WISE), and edits that need
reasoning (RISE). Items follow from a seed without end, so that they cannot be learned by heart; a
group is one skill.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean

from pydantic import BaseModel

from inference.calls.hashing import stable_hash
from inference.sketch_world.perception import perceive_cached
from inference.sketch_world.renderer import render
from inference.sketch_world.scene import Scene
from schemas.errors import FoundryError
from warehouse import EncodedImage
from warehouse.atomic import atomic_write

from . import files
from .benchmark import (
    Answer,
    AnswerStep,
    Benchmark,
    Item,
    ItemMetrics,
    JudgeCall,
    Metrics,
    Values,
    mean,
)
from .sketch_tasks import MAX_DIFFICULTY, SKILLS, Task, write_task

_METRICS = ("success", "met")
_BACKGROUND = "background"  # the question whether the last picture has the right one


class _Step(BaseModel):
    text: str
    image: str | None


class _Answer(BaseModel):
    steps: tuple[_Step, ...]


class SketchBenchmark(Benchmark):
    """Items of one shape, judged without a model; `Item.official` is the task."""

    headline = "success"

    def __init__(self, name: str, folder: Path, tasks: Mapping[str, Task]) -> None:
        self.name, self.items = name, []
        for item_id, task in tasks.items():
            given = _write_pictures(folder, item_id, task.given)
            self.items.append(Item(item_id, task.skill, task.text, given, task))

    @classmethod
    def open(
        cls, shape: str, folder: Path, seed: int = 0, difficulty: int = 1, items: int = 40
    ) -> "SketchBenchmark":
        """The first `items` of a seed; given pictures are written below `folder`.

        Another seed or difficulty than the default is part of the benchmark's name.

        Args:
            difficulty: raises the number of things and steps; from 1 to `MAX_DIFFICULTY`.

        Raises:
            FoundryError: there is no such difficulty.
        """
        if difficulty > MAX_DIFFICULTY:
            raise FoundryError(f"difficulty {difficulty}: choose 1 to {MAX_DIFFICULTY}")
        tasks = {}
        for number in range(items):
            key = (shape, seed, difficulty, number)
            rng = Random(int(stable_hash("sketch-benchmark", *key), 16))
            skill = SKILLS[number % len(SKILLS)]
            item_id = f"{shape}-{seed}-{difficulty}-{number:04d}"
            tasks[item_id] = write_task(shape, skill, difficulty, rng)
        other = f"-seed{seed}" * (seed != 0) + f"-difficulty{difficulty}" * (difficulty != 1)
        return cls(f"sketch-{shape}{other}", folder, tasks)

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        """None: no model is asked."""
        return []

    def judge(self, item: Item, answer: Answer) -> Values:
        """Whether each requirement is met, by what it asks; from the pixels of the pictures.

        How well things are drawn (crooked, scribbled) does not count.

        Raises:
            BadImageError: a picture cannot be decoded.
        """
        task: Task = item.official
        scenes = [perceive_cached(step.image).scene for step in answer if step.image]
        values = {each.question: each.is_met(scenes) for each in task.requirements}
        background = task.expected[-1].background
        return {_BACKGROUND: bool(scenes) and scenes[-1].background == background, **values}

    def metrics(self, item: Item, values: Values) -> Metrics:
        met = [value is True for value in values.values()]
        return {"success": float(all(met)), "met": fmean(met)}

    def quality_by_step(self, item: Item, values: Values) -> Mapping[int, float]:
        """Share of the requirements of each picture that are met; many ask about the last only."""
        task: Task = item.official
        met = defaultdict[int, list[bool]](list)
        for each in task.requirements:
            if each.question in values:
                step = len(task.expected) + 1 + each.picture
                met[step].append(values[each.question] is True)
        return {step: fmean(answers) for step, answers in sorted(met.items())}

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        """Means of success and of the share of met requirements, and success by skill."""
        skills = {f"{skill}/success": mean(items, "success", skill) for skill in SKILLS}
        return {metric: mean(items, metric) for metric in _METRICS} | skills

    def write_answer(self, folder: Path, item: Item, answer: Answer) -> None:
        """`<item id>.json` has the steps, the pictures lie beside it."""
        steps = []
        for number, step in enumerate(answer, 1):
            stem = f"{item.item_id}-{number}"
            name = files.write_image(folder, stem, step.image.as_png) if step.image else None
            steps.append({"text": step.text, "image": name})
        files.write_json(folder / f"{item.item_id}.json", {"steps": steps})

    def answers_in(self, source: Path) -> Iterator[tuple[str, Answer]]:
        for path in files.answer_files(source, "*.json"):
            steps = files.read_answers(path, _Answer).steps
            yield path.stem, tuple(_answer_step(path, step) for step in steps)


def _answer_step(path: Path, step: _Step) -> AnswerStep:
    if step.image is None:
        return AnswerStep(step.text)
    return AnswerStep(step.text, files.read_image(path.with_name(Path(step.image).name), path.stem))


def _write_pictures(folder: Path, item_id: str, scenes: Sequence[Scene]) -> tuple[Path, ...]:
    """Files of the scenes, named by their content, so that one that is there is the right one."""
    pictures = [EncodedImage.of(render(scene)) for scene in scenes]
    paths = tuple(folder / f"{item_id}-{picture.sha256[:12]}.png" for picture in pictures)
    for path, picture in zip(paths, pictures, strict=True):
        if not path.exists():
            atomic_write(path, picture.data)
    return paths
