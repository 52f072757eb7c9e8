"""WISE: pictures of what a prompt hints at, which one has to know (arXiv 2503.07265).

Two versions: `legacy`, the paper's, with three scores of a picture, and `verified` (April 2026),
with corrected prompts and one yes or no. A judge sees the prompt, its explanation and the picture
as it was drawn; the wording is ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

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
    mean,
    read_prompts,
    unique,
)

Version = Literal["legacy", "verified"]

SCORE, WISCORE, OVERALL = "score", "wiscore", "overall"
_PROMPTS = read_prompts("wise")
_AREAS = ("cultural_common_sense", "spatio-temporal_reasoning", "natural_science")


@dataclass(frozen=True)
class _Protocol:
    """What the versions differ in.

    Args:
        folders: of the repository, or below it, in which the files may be.
        suffix: of the files' names.
        best: score of a criterion, from 0.
        criteria: criterion -> its weight in an item's `wiscore`.
        groups: group -> its last prompt id, and its weight in the overall. The official calculators
            group by id, never by the files' category.
    """

    folders: tuple[str, ...]
    suffix: str
    best: int
    criteria: Mapping[str, float]
    groups: Mapping[str, tuple[int, float]]


_PROTOCOLS: Mapping[Version, _Protocol] = {
    "legacy": _Protocol(
        folders=("WISE_legacy/data", "data", ""),
        suffix="",
        best=2,
        criteria={"consistency": 0.7, "realism": 0.2, "aesthetic_quality": 0.1},
        groups={
            "culture": (400, 0.4),
            "time": (567, 0.167),
            "space": (700, 0.133),
            "biology": (800, 0.1),
            "physics": (900, 0.1),
            "chemistry": (1000, 0.1),
        },
    ),
    "verified": _Protocol(
        folders=("data_verified", ""),
        suffix="_verified",
        best=1,
        criteria={SCORE: 1},
        groups={
            "culture": (400, 0.4),
            "time": (520, 0.12),
            "space": (640, 0.12),
            "biology": (760, 0.12),
            "physics": (880, 0.12),
            "chemistry": (1000, 0.12),
        },
    ),
}


class _Prompt(BaseModel):
    """A prompt, and the explanation that only a judge gets."""

    model_config = ConfigDict(frozen=True)

    prompt_id: int = Field(ge=1, le=1000)
    prompt: str = Field(alias="Prompt", min_length=1)
    explanation: str = Field(alias="Explanation")


class Wise(SingleImageBenchmark):
    """A thousand prompts in six groups.

    Args:
        source: a copy of the official repository, or its folder with the files of that version.
    """

    headline = OVERALL

    def __init__(self, source: Path, version: Version) -> None:
        self.name = f"wise-{version}"
        self._version, self._protocol = version, _PROTOCOLS[version]
        names = [f"{area}{self._protocol.suffix}.json" for area in _AREAS]
        first = files.find_file(source, self._protocol.folders, names[:1], f"WISE ({version})")
        paths = [first.with_name(name) for name in names]
        prompts = [each for path in paths for each in files.read_rows(path, _Prompt)]
        prompts.sort(key=lambda prompt: prompt.prompt_id)
        self.items = unique(source, self.name, map(self._item, prompts))

    def image_calls(self, item: Item, image: EncodedImage) -> list[JudgeCall]:
        facts = f"Prompt: {item.text}\nExplanation: {item.official.explanation}"
        text = f"{_PROMPTS[self._version]}\n\n{facts}"
        return [JudgeCall(SCORE, text, self._read_scores, (image,))]

    def _read_scores(self, text: str) -> JsonValue:
        """Criterion -> integer of its scale; None: not of every criterion."""
        scale = f"[0-{self._protocol.best}]"
        scores = {
            name: grade(text, name.replace("_", "[ _]"), scale) for name in self._protocol.criteria
        }
        return None if None in scores.values() else {**scores}

    def metrics(self, item: Item, values: Values) -> Metrics:
        """`wiscore` in 0..1 and, in the legacy version, each criterion in 0..2."""
        weights = self._protocol.criteria
        shown = weights if len(weights) > 1 else ()
        worst = dict.fromkeys(weights, 0)
        scores = worst if NOTHING_ASKED in values else values.get(SCORE)
        if not isinstance(scores, dict):
            return dict.fromkeys((WISCORE, *shown))
        numbers = {name: float(scores[name]) for name in weights}  # type: ignore[arg-type]
        total = sum(weight * numbers[name] for name, weight in weights.items())
        return {WISCORE: total / self._protocol.best, **{name: numbers[name] for name in shown}}

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        """The mean of each group, and their weighted sum.

        The official calculators print no overall while the result of a single prompt is missing.
        Here an unscored item counts in no mean, and the overall is None unless every group has one.
        """
        groups = self._protocol.groups
        means = {group: mean(items, WISCORE, group) for group in groups}
        known = [
            weight * value
            for group, (_, weight) in groups.items()
            if (value := means[group]) is not None
        ]
        return {OVERALL: sum(known) if len(known) == len(groups) else None, **means}

    def _item(self, prompt: _Prompt) -> Item:
        number, groups = prompt.prompt_id, self._protocol.groups.items()
        group = next(name for name, (last, _) in groups if number <= last)
        return Item(str(number), group, prompt.prompt, official=prompt)
