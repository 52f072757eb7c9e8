"""RISE's metrics, and a reader of its official judgements."""

import math
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from schemas.errors import FoundryError

from ..benchmark import ItemMetrics, Metrics
from .items import CATEGORIES, LOGICAL, RiseData, RiseItem
from .judge import CONSISTENCY, PLAUSIBILITY, REASONING, call_names

Scorer = Literal["original", "fixed"]
ACCURACY, SCORE, PERCENT = "accuracy", "score", "percent"
DIMENSIONS = (REASONING, CONSISTENCY, PLAUSIBILITY)
BEST = 5


def item_metrics(
    data: RiseData, item: RiseItem, answers: Mapping[str, int | None], scorer: Scorer
) -> Metrics:
    """`accuracy` (0 or 1), `score` (1 to 5) and each dimension (1 to 5) in which it is judged.

    All None if a dimension is unscored. The official accuracy counts such an item as 0.

    Args:
        answers: dimension -> the judge's answer, 0 or 1 for logical items; None: unreadable.
    """
    known = {name: answer for name in call_names(item) if (answer := answers.get(name)) is not None}
    if known.keys() != call_names(item).keys():
        return dict.fromkeys((ACCURACY, SCORE, *call_names(item)))
    values = {name: _on_scale(item, answer) for name, answer in known.items()}
    accuracy = _is_complete(item, values, scorer)
    return {ACCURACY: float(accuracy), SCORE: _score(data, item, values), **values}


def lowest(data: RiseData, item: RiseItem, scorer: Scorer) -> Metrics:
    """The metrics of an answer without a picture."""
    worst = 0 if item.group == LOGICAL else 1
    return item_metrics(data, item, dict.fromkeys(call_names(item), worst), scorer)


def _on_scale(item: RiseItem, answer: int) -> float:
    return float(4 * min(answer, 1) + 1 if item.group == LOGICAL else answer)


def _is_complete(item: RiseItem, values: Mapping[str, float], scorer: Scorer) -> bool:
    """Before the fix of April 2026, an item without a judged consistency was never complete."""
    if item.is_consistency_free and scorer == "original":
        return False
    return all(value == BEST for value in values.values())


def _score(data: RiseData, item: RiseItem, values: Mapping[str, float]) -> float:
    reasoning, consistency = values[REASONING], values.get(CONSISTENCY, math.nan)
    if item.group == LOGICAL:
        score = 0.3 * consistency + 0.7 * reasoning
    elif data.counts_consistency(item):
        score = 0.3 * consistency + 0.5 * reasoning + 0.2 * values[PLAUSIBILITY]
    else:
        score = 0.2 * values[PLAUSIBILITY] + 0.8 * reasoning
    return max(score * 0.5, 1.0) if reasoning == 1 else score


def aggregate(items: Sequence[ItemMetrics]) -> dict[str, float | None]:
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


def _numbers(items: Sequence[ItemMetrics]) -> dict[str, float | None]:
    accuracy, score = _mean(items, ACCURACY), _mean(items, SCORE)
    return {
        ACCURACY: None if accuracy is None else 100 * accuracy,
        PERCENT: None if score is None else 25 * (score - 1),
        SCORE: score,
        **{name: _mean(items, name) for name in DIMENSIONS},
    }


def _mean(items: Sequence[ItemMetrics], metric: str) -> float | None:
    """As pandas computes it: the sum with 0 for what is missing, so that the last digit agrees."""
    values = [item.metrics.get(metric) for item in items]
    count = len(values) - values.count(None)
    return float(np.sum([value or 0.0 for value in values]) / count) if count else None


class _PlainUnpickler(pickle.Unpickler):
    """Reads dicts and texts and nothing else, so that a file cannot run code."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise pickle.UnpicklingError(f"has an object of {module_name}.{global_name}")


_OFFICIAL_CALLS = {"judge1": CONSISTENCY, "judge2": REASONING, "judge3": PLAUSIBILITY}
_OFFICIAL_SCORE = re.compile(r"Final Scores?[*:\s]*([\d*\s,]*)", re.IGNORECASE)


def read_judgements(path: Path, data: RiseData, scorer: Scorer) -> list[ItemMetrics]:
    """The items of an official `<system>.pkl`, a judge's texts, as `aggregate` takes them.

    As in the official script, an item with an unreadable text has accuracy 0 and no score.

    Raises:
        FoundryError: a missing or damaged file, or one without judgements of an item, in one line.
    """
    return [
        ItemMetrics(item.index, item.group, _official_metrics(data, item, texts, scorer))
        for item, texts in _texts(path, data)
    ]


def _official_metrics(
    data: RiseData, item: RiseItem, texts: Mapping[str, Any], scorer: Scorer
) -> Metrics:
    answers = {name: _official_score(texts.get(key)) for key, name in _OFFICIAL_CALLS.items()}
    metrics = item_metrics(data, item, answers, scorer)
    return {**metrics, ACCURACY: metrics[ACCURACY] or 0.0}


def _texts(path: Path, data: RiseData) -> Iterator[tuple[RiseItem, Mapping[str, Any]]]:
    try:
        with path.open("rb") as file:
            judged = _PlainUnpickler(file).load()
    except OSError as error:
        raise FoundryError(f"{path}: cannot be read ({error.strerror}); copy it again") from error
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError) as error:
        raise FoundryError(f"{path}: is no file of judgements ({error}); write it again") from error
    for item in data.items:
        texts = judged.get(item.index) if isinstance(judged, dict) else None
        if not isinstance(texts, dict):
            raise FoundryError(f"{path}: has no judgements of item {item.index}; finish the run")
        yield item, texts


def _official_score(text: object) -> int | None:
    """The first number after `Final Score`; None: there is none, or several together."""
    found = _OFFICIAL_SCORE.findall(text) if isinstance(text, str) else []
    numbers = next((digits for part in found if (digits := re.findall(r"\d+", part))), [])
    return int(numbers[0]) if len(numbers) == 1 else None
