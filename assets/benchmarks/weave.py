"""WEAVEBench: conversations whose turns draw, or change pictures of earlier turns (2511.15738).

Its mode `img`: turns that are answered with a picture. A judge gives each three integers from 0 to
10; the wording is ours. A system gets all turns as one request for so many pictures, where the
official runner asks turn by turn.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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
    grade,
    pictures,
    pooled,
    read_prompts,
    unique,
)

OVERALL, KEY_POINT, _QUALITY = "overall", "key_point", "image_quality"
_WEIGHTS = {KEY_POINT: 0.5, "visual_consistency": 0.2, _QUALITY: 0.3}
_GROUPS = {
    "science": ("optics", "geography", "astronomy", "chemistry", "physics", "biology"),
    "creation": ("edit", "recall", "fusion", "story"),
    "logic": ("spatial", "mathematics"),
    "game": ("chess_game", "visual_jigsaw", "minecraft", "maze"),
}
_OTHER, _BEST, _PICTURE = "other", 10, "<image>"
_NAMED = re.compile(r"(GT|Image) #(\d+)")  # the official picture, or the system's own
_PROMPTS = read_prompts("weave")


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)

    type: Literal["text", "image"]
    content: str
    key_point: dict[str, str] | None = None

    @property
    def image(self) -> int:
        """Number of the picture that an answer is, from 1, in the conversation."""
        return _numbers(self.content)[0]


class _Conversation(BaseModel):
    """A task of the official file: questions and answers in turn, which name pictures by number."""

    model_config = ConfigDict(frozen=True)

    idx: int
    domain: str
    images: tuple[str, ...]
    chats: tuple[_Message, ...] = Field(min_length=2)

    @cached_property
    def turns(self) -> list[tuple[_Message, _Message]]:
        """Questions that are answered with a picture, and these answers."""
        pairs = zip(self.chats[::2], self.chats[1::2], strict=False)
        return [(question, answer) for question, answer in pairs if answer.type == "image"]

    @property
    def given(self) -> list[int]:
        """Numbers of the pictures that questions name, and no turn draws."""
        named = {number for question, _ in self.turns for number in _numbers(question.content)}
        return sorted(named - {answer.image for _, answer in self.turns})

    @property
    def request(self) -> str:
        shown = [f"Image #{number}: {_PICTURE}" for number in self.given]
        asked = [f"Image #{answer.image}: {question.content}" for question, answer in self.turns]
        return "\n".join([*shown, f"Draw {len(asked)} images, in this order, a step each:", *asked])


class Weave(Benchmark):
    """100 conversations in four groups of domains; those in which nothing is drawn are left out.

    Args:
        source: the unpacked test set, or the folder above it.
    """

    name, headline, judge_temperature = "weave", OVERALL, 1

    def __init__(self, source: Path) -> None:
        path = files.find_file(source, ["", "test"], ["test.json"], "WEAVEBench")
        self._folder = path.parent
        rows = [row for row in files.read_rows(path, _Conversation) if row.turns]
        self.items = unique(path, self.name, map(self._item, rows))
        self._turns = {item.item_id: len(item.official.turns) for item in self.items}
        named = [(str(row.idx), name, self._folder / name) for row in rows for name in row.images]
        files.check_pictures(path, named, "unpack WEAVEBench's test.zip beside the file")

    def _item(self, row: _Conversation) -> Item:
        group = next((group for group, own in _GROUPS.items() if row.domain in own), _OTHER)
        given = tuple(self._folder / row.images[number - 1] for number in row.given)
        return Item(str(row.idx), group, row.request, given, row)

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        """Three for each turn that has a picture; the pictures of an answer are those of turns."""
        turns = [reply for _, reply in item.official.turns]
        drawn = {turn.image: image for turn, image in zip(turns, pictures(answer), strict=False)}
        read = partial(grade, label="score", scale="10|[0-9]")
        calls = []
        for number, turn in enumerate(turns[: len(drawn)], 1):
            points, images = self._key_points(item, turn, drawn)
            for metric in _WEIGHTS:
                facts, seen = ("", images[:1]) if metric == _QUALITY else (points, images)
                text = "\n\n".join(filter(None, (_PROMPTS[metric], facts, _PROMPTS["grade"])))
                calls.append(JudgeCall(f"{metric}-{number}", text, read, seen))
        return calls

    def _key_points(
        self, item: Item, turn: _Message, drawn: Mapping[int, EncodedImage]
    ) -> tuple[str, tuple[EncodedImage, ...]]:
        """Lines of requirements; the turn's picture, and those that it is compared with."""
        images, lines = [drawn[turn.image]], []
        for number, (key, text) in enumerate((turn.key_point or {}).items(), 1):
            if (named := _NAMED.search(key)) and _PICTURE in text:
                own = drawn.get(int(named[2])) if named[1] == "Image" else None
                path = self._folder / item.official.images[int(named[2]) - 1]
                images.append(own or files.read_image(path, item.item_id))
                text = text.replace(_PICTURE, f"[image {len(images)}]")
            lines.append(f"{number}. {text}")
        return "\n".join(lines), tuple(images)

    def metrics(self, item: Item, values: Values) -> Metrics:
        """Means over turns, 0..1."""
        scores = {name: self._by_turn(item, name, values) for name in _WEIGHTS}
        known = {name: [each for each in own if each is not None] for name, own in scores.items()}
        means = {n: fmean(known[n]) if known[n] == scores[n] else None for n in _WEIGHTS}
        return {OVERALL: _weighted(means), **means}

    def quality_by_step(self, item: Item, values: Values) -> Mapping[int, float]:
        scores = self._by_turn(item, KEY_POINT, values)
        return {number: score for number, score in enumerate(scores, 1) if score is not None}

    def _by_turn(self, item: Item, metric: str, values: Values) -> list[float | None]:
        """0..1; 0 for a turn without a picture, about which nothing is asked; None: unscored."""
        numbers = range(1, len(item.official.turns) + 1)
        scores = [values.get(f"{metric}-{number}", 0) for number in numbers]
        return [score / _BEST if isinstance(score, int) else None for score in scores]

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        """Of all conversations, and of each group as `<group>/<number>`: means over turns with the
        official rounding, and their weighted sum.
        """
        numbers: dict[str, float | None] = {}
        for group in (None, *_GROUPS):
            own = [item for item in items if group in (None, item.group)]
            means = {metric: _rounded(pooled(own, metric, self._turns)) for metric in _WEIGHTS}
            found = {OVERALL: _rounded(_weighted(means)), **means}
            numbers |= {f"{group}/{name}" if group else name: found[name] for name in found}
        return numbers

    def write_answer(self, folder: Path, item: Item, answer: Answer) -> None:
        """Each turn's picture, by the name that the official file gives it."""
        paths, drawn = _paths(folder, item), pictures(answer)
        for path in paths[len(drawn) :]:
            path.unlink(missing_ok=True)  # those of an earlier answer
        for path, image in zip(paths, drawn, strict=False):
            atomic_write(path, image.data)

    def answers_in(self, source: Path) -> Iterator[tuple[str, Answer]]:
        """The pictures of each conversation up to the first that is missing."""
        for item in self.items:
            paths = takewhile(Path.is_file, _paths(source, item))
            images = [files.read_image(path, item.item_id) for path in paths]
            if images:
                yield item.item_id, tuple(AnswerStep("", image) for image in images)


def _numbers(text: str) -> list[int]:
    return [int(number) for _, number in _NAMED.findall(text)]


def _paths(folder: Path, item: Item) -> list[Path]:
    names = (item.official.images[answer.image - 1] for _, answer in item.official.turns)
    return [folder / Path(name).name for name in names]


def _weighted(means: Mapping[str, float | None]) -> float | None:
    known = [_WEIGHTS[name] * value for name, value in means.items() if value is not None]
    return sum(known) if len(known) == len(_WEIGHTS) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
