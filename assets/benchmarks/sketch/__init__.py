"""Benchmarks of the sketch world, judged exactly: for a laptop and for CI.

Their shapes are those of the field's benchmarks: interleaved answers from text (UEval),
continuation of given pictures (CoMM), pictures that must be inferred (WISE), and edits that need
reasoning (RISE). Items follow from a seed without end, so that they cannot be learned by heart; a
group is one skill.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean

from inference.calls.hashing import stable_hash
from inference.sketch_world.perception import perceive_cached
from inference.sketch_world.renderer import render
from inference.sketch_world.scene import Scene
from schemas.errors import FoundryError
from warehouse import EncodedImage
from warehouse.atomic import atomic_write

from ..benchmark import Answer, ExactlyJudged, Item, ItemMetrics, Metrics, Values
from . import layout
from .shapes import write_task
from .tasks import MAX_DIFFICULTY, SHAPES, SKILLS, Task

__all__ = ["SHAPES", "SKILLS", "SketchBenchmark"]

_METRICS = ("success", "met")
_BACKGROUND = "background"  # the question whether the last picture has the right one


class SketchBenchmark(ExactlyJudged):
    """Items of one shape.

    Attributes:
        tasks: item id -> what the item requires.
    """

    headline = "success"

    def __init__(self, name: str, folder: Path, tasks: Mapping[str, Task]) -> None:
        self.name, self.tasks = name, tasks
        self.items = [
            Item(item_id, task.skill, task.text, _write_pictures(folder, item_id, task.given))
            for item_id, task in tasks.items()
        ]

    @classmethod
    def open(
        cls, shape: str, folder: Path, seed: int = 0, difficulty: int = 1, items: int = 40
    ) -> "SketchBenchmark":
        """The first `items` of a seed; given pictures are written below `folder`.

        Another seed or difficulty than the default is part of the benchmark's name.

        Args:
            difficulty: raises the number of things and steps; from 1 to `MAX_DIFFICULTY`.

        Raises:
            FoundryError: there is no such shape or difficulty, or no item.
        """
        if shape not in SHAPES:
            raise FoundryError(f"no sketch benchmark {shape}; there are: {', '.join(SHAPES)}")
        if not 1 <= difficulty <= MAX_DIFFICULTY:
            raise FoundryError(f"difficulty {difficulty}: choose 1 to {MAX_DIFFICULTY}")
        if items < 1:
            raise FoundryError(f"{items} items: choose at least 1")
        tasks = {}
        for number in range(items):
            key = (shape, seed, difficulty, number)
            rng = Random(int(stable_hash("sketch-benchmark", *key), 16))
            skill = SKILLS[number % len(SKILLS)]
            item_id = f"{shape}-{seed}-{difficulty}-{number:04d}"
            tasks[item_id] = write_task(shape, skill, difficulty, rng)
        other = f"-seed{seed}" * (seed != 0) + f"-difficulty{difficulty}" * (difficulty != 1)
        return cls(f"sketch-{shape}{other}", folder, tasks)

    def judge(self, item: Item, answer: Answer) -> Values:
        """Whether each requirement is met, by what it asks; from the pixels of the pictures.

        How well things are drawn (crooked, scribbled) does not count.

        Raises:
            BadImageError: a picture cannot be decoded.
        """
        task = self.tasks[item.item_id]
        scenes = [perceive_cached(step.image).scene for step in answer if step.image]
        values = {each.question: each.is_met(scenes) for each in task.requirements}
        background = task.expected[-1].background
        return {_BACKGROUND: bool(scenes) and scenes[-1].background == background, **values}

    def metrics(self, item: Item, values: Values) -> Metrics:
        if not values:
            return dict.fromkeys(_METRICS)
        met = [value is True for value in values.values()]
        return {"success": float(all(met)), "met": fmean(met)}

    def quality_by_step(self, item: Item, values: Values) -> Mapping[int, float]:
        """Share of the requirements of each picture that are met; many ask about the last only."""
        task, met = self.tasks[item.item_id], defaultdict[int, list[bool]](list)
        for each in task.requirements:
            if each.question in values:
                step = len(task.expected) + 1 + each.picture
                met[step].append(values[each.question] is True)
        return {step: fmean(answers) for step, answers in sorted(met.items())}

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        """Means of success and of the share of met requirements, and success by skill."""
        skills = {
            f"{skill}/success": _mean([item for item in items if item.group == skill], "success")
            for skill in SKILLS
        }
        return {metric: _mean(items, metric) for metric in _METRICS} | skills

    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        if not system or Path(system).name != system:
            raise FoundryError(f"system name {system!r}: must be usable as a folder's name")
        layout.write_answers(root / system, answers)
        return root / system

    def read_answers(self, source: Path) -> Iterator[tuple[str, Answer]]:
        for item_id, answer in layout.read_answers(source):
            if item_id not in self.tasks:
                raise FoundryError(f"{source}: answer {item_id} is to no item of {self.name}")
            yield item_id, answer


def _mean(items: Sequence[ItemMetrics], metric: str) -> float | None:
    known = [value for item in items if (value := item.metrics.get(metric)) is not None]
    return fmean(known) if known else None


def _write_pictures(folder: Path, item_id: str, scenes: Sequence[Scene]) -> tuple[Path, ...]:
    """Files of the scenes, named by their content, so that one that is there is the right one."""
    pictures = [EncodedImage.of(render(scene)) for scene in scenes]
    files = tuple(folder / f"{item_id}-{picture.sha256[:12]}.png" for picture in pictures)
    for file, picture in zip(files, pictures, strict=True):
        if not file.exists():
            atomic_write(file, picture.data)
    return files
