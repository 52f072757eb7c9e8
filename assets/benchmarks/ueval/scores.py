"""UEval's numbers, and the reader of its official result files.

Three averages are in use, and each is given under a name of its own:
`text_avg_rate` and `image_avg_rate` (the official summary, 0..1): means over items;
`average` (the official leaderboard, %): the mean over the tasks of mean(text, image);
`item_weighted_average` (the paper's, %): the mean of the two of the summary.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schemas.errors import FoundryError, first_problem

from ..benchmark import ItemMetrics
from .items import TASKS

HEADLINE = "average"
TEXT, IMAGE = "text_rate", "image_rate"


def summarize(items: Sequence[ItemMetrics]) -> dict[str, float | None]:
    """All numbers, also `<task>/text`, `<task>/image` and `<task>/average`, in %."""
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    for item in items:
        for name, rate in item.metrics.items():
            if rate is not None:
                rates["", name].append(rate)
                rates[item.group, name].append(rate)
    text, image = _mean(rates["", TEXT]), _mean(rates["", IMAGE])
    tasks = {task: _pair(_mean(rates[task, TEXT]), _mean(rates[task, IMAGE])) for task in TASKS}
    averages = [pair["average"] for pair in tasks.values() if pair["average"] is not None]
    return {
        HEADLINE: _mean(averages),
        "item_weighted_average": _pair(text, image)["average"],
        "text_avg_rate": text,
        "image_avg_rate": image,
        **{f"{task}/{name}": value for task, pair in tasks.items() for name, value in pair.items()},
    }


def _pair(text: float | None, image: float | None) -> dict[str, float | None]:
    """Rates as percentages, and their mean; None unless both are there."""
    both = None if text is None or image is None else 100 * (text + image) / 2
    percent = [None if rate is None else 100 * rate for rate in (text, image)]
    return {"text": percent[0], "image": percent[1], "average": both}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


class _Score(BaseModel):
    model_config = ConfigDict(extra="ignore")

    met: int = Field(ge=0)
    total: int = Field(ge=0)

    @property
    def rate(self) -> float | None:
        return self.met / self.total if self.total else None


class _ResultRow(BaseModel):
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    id: str
    text_score: _Score
    image_score: _Score


class _Results(BaseModel):
    model_config = ConfigDict(extra="ignore")

    items: list[_ResultRow]


def read_results(path: Path, tasks: Mapping[str, str]) -> list[ItemMetrics]:
    """The rates in a file that the official scorer wrote.

    Args:
        tasks: item id -> task, which that file does not have.

    Raises:
        FoundryError: a missing or damaged file, or an item that is not in `tasks`.
    """
    try:
        results = _Results.model_validate_json(path.read_bytes())
    except OSError as error:
        raise FoundryError(
            f"{path}: cannot be read ({error.strerror}); give a result file of UEval"
        ) from error
    except ValidationError as error:
        problem = first_problem(error, root="file")
        raise FoundryError(f"{path}: {problem}; score the answers again") from error
    unknown = [row.id for row in results.items if row.id not in tasks]
    if unknown:
        raise FoundryError(f"{path}: item {unknown[0]} is none of UEval's; give its newer items")
    return [
        ItemMetrics(row.id, tasks[row.id], {TEXT: row.text_score.rate, IMAGE: row.image_score.rate})
        for row in results.items
    ]
