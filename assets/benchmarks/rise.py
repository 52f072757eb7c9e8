"""RISE: edits whose result one has to infer, of four kinds (RISEBench, arXiv 2504.02826).

Two scorers: `original`, as in published tables until April 2026, and `fixed`, with which items
whose consistency is not judged can be complete as well.

A judge is asked three questions about a picture: does it leave alone what the instruction does not
touch, does it show what follows from the instruction, and could it be real? Logical items have no
third one, and the answers to the others are yes (1) or no (0); otherwise integers from 1 to 5. What
is shown for which item is the benchmark's; the wording is ours.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from warehouse import EncodedImage

from . import files
from .benchmark import (
    NOTHING_ASKED,
    Item,
    ItemMetrics,
    JudgeCall,
    Metrics,
    SingleImageBenchmark,
    Values,
    grade,
    read_prompts,
    unique,
)

Scorer = Literal["original", "fixed"]

LOGICAL = "logical"
CATEGORIES = ("temporal", "causal", "spatial", LOGICAL)
CONSISTENCY, REASONING, PLAUSIBILITY = "consistency", "reasoning", "plausibility"
ACCURACY, SCORE, PERCENT = "accuracy", "score", "percent"
_FILES = ("datav2_total_w_subtask.json", "data_total.json")  # all 360 items, or the examples
_BINARY = "-yes-no"  # ends the names of calls whose answer is 0 or 1
_BEST = 5
_PROMPTS = read_prompts("rise")
_MAX_EDGE = 768  # to which the protocol reduces larger pictures
# A judge's task, facts by their label, and pictures that are shown before the answer.
_Asked = tuple[str, Mapping[str, str | None], list[str]]


class _RiseItem(BaseModel):
    """A row of the official file.

    The official script takes a flag for set if it has any value at all, be it false.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    index: str = Field(pattern=r"^[\w-]+$")
    category: Literal[
        "temporal_reasoning", "causal_reasoning", "spatial_reasoning", "logical_reasoning"
    ]
    instruction: str = Field(min_length=1)
    image: str
    reference: str | None = None
    reference_txt: str | None = None
    reference_img: str | None = None
    consistency_free: JsonValue = None
    reasoning_img: JsonValue = None

    @model_validator(mode="after")
    def _check_reference(self) -> Self:
        text = self.reference_txt if self.is_logical else self.reference
        if not (self.reference_picture or text):
            raise ValueError("has no reference for a judge")
        if self.is_logical and self.consistency_free is not None:
            raise ValueError("consistency_free: logical items are always judged for consistency")
        return self

    @property
    def group(self) -> str:
        """One of `CATEGORIES`."""
        return self.category.removesuffix("_reasoning")

    @property
    def is_logical(self) -> bool:
        return self.group == LOGICAL

    @property
    def reference_picture(self) -> str | None:
        """The picture that is the right answer, where the protocol uses one."""
        if self.group == "spatial" or (self.is_logical and not self.reference_txt):
            return self.reference_img
        return None

    @property
    def calls(self) -> dict[str, str]:
        """Dimension -> name of its call, of the dimensions in which the item is judged."""
        if self.is_logical:
            return {name: f"{name}{_BINARY}" for name in (CONSISTENCY, REASONING)}
        free = self.consistency_free is not None
        names = (REASONING, PLAUSIBILITY) if free else (CONSISTENCY, REASONING, PLAUSIBILITY)
        return {name: name for name in names}


class Rise(SingleImageBenchmark):
    """Temporal, causal, spatial and logical edits.

    Args:
        source: a folder with an official file and its pictures, or a copy of the repository.
    """

    headline = ACCURACY
    suffixes = (".png", ".jpg", ".jpeg")

    def __init__(self, source: Path, scorer: Scorer) -> None:
        self.name = "rise" if scorer == "original" else "rise-fixed"
        self._scorer = scorer
        path = files.find_file(source, ("", "data"), _FILES, "RISEBench")
        self._folder = path.parent
        rows = files.read_rows(path, _RiseItem)
        self.items = unique(path, self.name, map(self._item, rows))
        named = [(i.index, name) for i in rows for name in (i.image, i.reference_picture) if name]
        pictures = [(item_id, name, self._folder / name) for item_id, name in named]
        files.check_pictures(path, pictures, "unpack RISEBench's pictures beside the file")
        # In the official script one item with the key hides the instruction of all logical items
        # whose pictures are compared with their reference.
        self._wordless = any("reasoning_wo_ins" in item.model_fields_set for item in rows)
        # If an item has the key, the official score takes a missing flag for a set one (a missing
        # value of pandas is true): no other item but logical ones has consistency in its score.
        self._flagged = any("consistency_free" in item.model_fields_set for item in rows)

    def _item(self, row: _RiseItem) -> Item:
        return Item(row.index, row.group, row.instruction, (self._folder / row.image,), row)

    def picture_folder(self, item: Item) -> str:
        return f"images/{item.official.category}"

    def image_calls(self, item: Item, image: EncodedImage) -> list[JudgeCall]:
        """All calls; FoundryError: a picture of the item is missing or damaged."""
        asked = {
            CONSISTENCY: self._consistency,
            REASONING: self._reasoning,
            PLAUSIBILITY: self._plausibility,
        }
        official: _RiseItem = item.official
        calls = []
        for dimension, name in official.calls.items():
            task, facts, shown = asked[dimension](official)
            given = [files.read_image(self._folder / each, official.index) for each in shown]
            calls.append(_call(name, task, facts, *given, image))
        return calls

    def metrics(self, item: Item, values: Values) -> Metrics:
        """`accuracy` (0 or 1), `score` (1 to 5) and each dimension (1 to 5) in which it is judged.

        All None if a dimension is unscored. The official accuracy counts such an item as 0.
        """
        official: _RiseItem = item.official
        if NOTHING_ASKED in values:
            values = dict.fromkeys(official.calls.values(), 0 if official.is_logical else 1)
        answers = {name: values.get(call) for name, call in official.calls.items()}
        known = {name: value for name, value in answers.items() if isinstance(value, int)}
        if known.keys() != answers.keys():
            return dict.fromkeys((ACCURACY, SCORE, *answers))
        if official.is_logical:  # 0 or 1, as 1 or 5
            known = {name: 4 * min(value, 1) + 1 for name, value in known.items()}
        scores = {name: float(value) for name, value in known.items()}
        accuracy = float(self._is_complete(scores))
        return {ACCURACY: accuracy, SCORE: self._score(official, scores), **scores}

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        """Pooled numbers, and those of each category as `<category>/<number>`.

        `accuracy` and `percent` (the score on a scale of 0 to 100) are in %, `score` and the
        dimensions in 1..5. An unscored item counts in none of them.
        """
        numbers = _numbers(items)
        for category in CATEGORIES:
            of_category = _numbers([item for item in items if item.group == category])
            numbers |= {f"{category}/{name}": value for name, value in of_category.items()}
        del numbers[f"{LOGICAL}/{PLAUSIBILITY}"]  # not judged
        return numbers

    def _is_complete(self, scores: Mapping[str, float]) -> bool:
        """Before the fix of April 2026, an item without a judged consistency was never complete."""
        if CONSISTENCY not in scores and self._scorer == "original":
            return False
        return all(value == _BEST for value in scores.values())

    def _score(self, item: _RiseItem, scores: Mapping[str, float]) -> float:
        reasoning, consistency = scores[REASONING], scores.get(CONSISTENCY, math.nan)
        if item.is_logical:
            score = 0.3 * consistency + 0.7 * reasoning
        elif self._weighs_consistency(item):
            score = 0.3 * consistency + 0.5 * reasoning + 0.2 * scores[PLAUSIBILITY]
        else:
            score = 0.2 * scores[PLAUSIBILITY] + 0.8 * reasoning
        return max(score * 0.5, 1.0) if reasoning == 1 else score

    def _weighs_consistency(self, item: _RiseItem) -> bool:
        if "consistency_free" in item.model_fields_set:
            return not item.consistency_free
        return not self._flagged

    def _consistency(self, item: _RiseItem) -> _Asked:
        task = _PROMPTS["logical_consistency" if item.is_logical else CONSISTENCY]
        if item.group not in ("temporal", "causal"):
            task = f"{task} {_PROMPTS['watermark']}"
        answer = item.reference_txt if item.is_logical else None
        facts = {"Instruction": item.instruction, "Right answer": answer}
        # As in the official script, a reference picture also takes the place of the given one here.
        return task, facts, [item.reference_picture or item.image]

    def _reasoning(self, item: _RiseItem) -> _Asked:
        instruction, picture = {"Instruction": item.instruction}, item.reference_picture
        if item.is_logical and picture:
            return _PROMPTS["logical_image"], {} if self._wordless else instruction, [picture]
        if item.is_logical:
            return _PROMPTS["logical_text"], {"Right answer": item.reference_txt}, []
        if picture:
            return _PROMPTS["reasoning_with_result"], instruction, [picture]
        facts = {**instruction, "Right result": item.reference}
        if item.reasoning_img is not None:
            return _PROMPTS["reasoning_with_given"], facts, [item.image]
        return _PROMPTS[REASONING], facts, []

    def _plausibility(self, item: _RiseItem) -> _Asked:
        name = "plausibility_of_renderings" if item.group == "spatial" else PLAUSIBILITY
        return _PROMPTS[name], {}, []


def _call(
    name: str, task: str, facts: Mapping[str, str | None], *images: EncodedImage
) -> JudgeCall:
    ending, scale = ("yes_no", "[01]") if name.endswith(_BINARY) else ("grade", "[1-5]")
    lines = [f"{label}: {text}" for label, text in facts.items() if text]
    text = "\n\n".join(filter(None, (task, "\n".join(lines), _PROMPTS[ending])))
    read = partial(grade, label="final score", scale=scale)
    return JudgeCall(name, text, read, tuple(map(_reduced, images)))


def _reduced(image: EncodedImage) -> EncodedImage:
    if max(image.image.size) <= _MAX_EDGE:
        return image
    small = image.image.copy()
    small.thumbnail((_MAX_EDGE, _MAX_EDGE))
    return EncodedImage.of(small)


def _numbers(items: Sequence[ItemMetrics]) -> dict[str, float | None]:
    accuracy, score = _mean(items, ACCURACY), _mean(items, SCORE)
    return {
        ACCURACY: None if accuracy is None else 100 * accuracy,
        PERCENT: None if score is None else 25 * (score - 1),
        SCORE: score,
        **{name: _mean(items, name) for name in (REASONING, CONSISTENCY, PLAUSIBILITY)},
    }


def _mean(items: Sequence[ItemMetrics], metric: str) -> float | None:
    """As pandas computes it: the sum with 0 for what is missing, so that the last digit agrees."""
    values = [item.metrics.get(metric) for item in items]
    count = len(values) - values.count(None)
    return float(np.sum([value or 0.0 for value in values]) / count) if count else None
