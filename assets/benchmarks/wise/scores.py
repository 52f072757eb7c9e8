"""WISE's metrics, and a reader of its official result files."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from schemas.errors import FoundryError, first_problem

from ..benchmark import ItemMetrics, Metrics
from .items import Version, group_of
from .judge import CRITERIA, SCORE

WISCORE, OVERALL = "wiscore", "overall"
_WEIGHTS: dict[Version, dict[str, float]] = {
    "legacy": {
        "culture": 0.4,
        "time": 0.167,
        "space": 0.133,
        "biology": 0.1,
        "physics": 0.1,
        "chemistry": 0.1,
    },
    "verified": {
        "culture": 0.4,
        "time": 0.12,
        "space": 0.12,
        "biology": 0.12,
        "physics": 0.12,
        "chemistry": 0.12,
    },
}
_NAMES: dict[Version, tuple[str, ...]] = {"legacy": CRITERIA, "verified": (SCORE,)}


def lowest(version: Version) -> dict[str, JsonValue]:
    """The scores of an answer without a picture."""
    return dict.fromkeys(_NAMES[version], 0)


def item_metrics(scores: JsonValue, version: Version) -> Metrics:
    """`wiscore` in 0..1 and, in the legacy version, each criterion in 0..2; None: unscored."""
    if not isinstance(scores, dict):
        return dict.fromkeys((WISCORE, *(CRITERIA if version == "legacy" else ())))
    numbers = {name: float(scores[name]) for name in _NAMES[version]}  # type: ignore[arg-type]
    if version == "verified":
        return {WISCORE: numbers[SCORE]}
    return {WISCORE: _wiscore(*numbers.values()), **numbers}


def _wiscore(consistency: float, realism: float, aesthetic_quality: float) -> float:
    return (0.7 * consistency + 0.2 * realism + 0.1 * aesthetic_quality) / 2


def aggregate(items: Sequence[ItemMetrics], version: Version) -> dict[str, float | None]:
    """The mean of each group, and their weighted sum.

    The official calculators print no overall while the result of a single prompt is missing. Here
    an unscored item counts in no mean, and the overall is None unless every group has a value.
    """
    values: dict[str, list[float]] = defaultdict(list)
    for item in items:
        value = item.metrics[WISCORE]
        if value is not None:
            values[item.group].append(value)
    weights = _WEIGHTS[version]
    means = {group: sum(values[group]) / len(values[group]) for group in weights if values[group]}
    complete = means.keys() == weights.keys()
    overall = sum(weight * means[group] for group, weight in weights.items()) if complete else None
    return {OVERALL: overall, **{group: means.get(group) for group in weights}}


class _ScoreRow(BaseModel):
    """A line of an official result file, of either version."""

    model_config = ConfigDict(strict=True)

    prompt_id: int = Field(ge=1, le=1000)
    consistency: float | None = Field(None, ge=0, le=2)
    realism: float | None = Field(None, ge=0, le=2)
    aesthetic_quality: float | None = Field(None, ge=0, le=2)
    score: float | None = Field(None, ge=0, le=1)


def read_scores(files: Sequence[Path], version: Version) -> list[ItemMetrics]:
    """The items of official `..._scores_results.jsonl` files, as `aggregate` takes them.

    A line without all its scores is unscored; a prompt that is there twice counts twice, as
    officially.

    Raises:
        FoundryError: a missing or damaged file, or a score outside its scale, in one line.
    """
    return [
        ItemMetrics(
            str(row.prompt_id),
            group_of(row.prompt_id, version),
            item_metrics(_complete(row, version), version),
        )
        for file in files
        for row in _rows(file)
    ]


def _complete(row: _ScoreRow, version: Version) -> JsonValue:
    scores: Mapping[str, JsonValue] = row.model_dump(include=set(_NAMES[version]))
    return None if None in scores.values() else dict(scores)


def _rows(file: Path) -> list[_ScoreRow]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise FoundryError(f"{file}: cannot be read ({error}); give a result file") from error
    return [_row(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _row(file: Path, number: int, line: str) -> _ScoreRow:
    try:
        return _ScoreRow.model_validate_json(line)
    except ValidationError as error:
        problem = first_problem(error, root="line")
        raise FoundryError(f"{file}: line {number}: {problem}; write it again") from error
