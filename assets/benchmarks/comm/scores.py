"""CoMM's means, and the reader of its official result files."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from schemas.errors import FoundryError

from ..benchmark import ItemMetrics

_FILES = ("evaluation_results.json", "completeness_and_text_fidelity.json")
_SCORED = frozenset(
    {
        "completeness",
        "Completeness",
        "Image_Quality",
        "image quality",
        "text fidelity to images",
        "Text Fidelity to Image",
    }
)
_COHERENCE = ("style", "entity", "trend", "overall")


def means(items: Sequence[ItemMetrics]) -> dict[str, float]:
    """The mean of every metric over the items that have it, in order of appearance."""
    values: dict[str, list[float]] = defaultdict(list)
    for item in items:
        for name, value in item.metrics.items():
            if value is not None:
                values[name].append(value)
    return {name: sum(found) / len(found) for name, found in values.items()}


def read_results(folder: Path, task: int) -> list[ItemMetrics]:
    """The scores that the official judge wrote, under its own names, sorted by item.

    An item of which anything has another form has no metrics at all, as in the official means.

    Raises:
        FoundryError: no such folder, an item without results, a damaged file, or a score that is
            no number.
    """
    if not folder.is_dir():
        raise FoundryError(f"{folder}: is not a folder; give the official results of a system")
    ids = sorted(path.name for path in folder.glob(f"*_task{task}"))
    return [ItemMetrics(name, "all", _item_scores(folder / name)) for name in ids]


def _item_scores(folder: Path) -> dict[str, float]:
    file = next((path for name in _FILES if (path := folder / name).is_file()), None)
    if file is None:
        raise FoundryError(f"{folder}: has no {_FILES[0]}; judge the item again or remove it")
    try:
        results = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise FoundryError(f"{file}: cannot be read ({error}); judge the item again") from error
    try:
        scores = _official_scores(results)
    except (KeyError, TypeError, AttributeError):
        return {}
    for name, score in scores.items():
        if score not in (None, "NA") and not isinstance(score, int | float):
            raise FoundryError(f"{file}: {name} is {score!r}, no number; judge the item again")
    return {name: _number(score) for name, score in scores.items()}


def _official_scores(results: dict[str, dict[str, object]]) -> dict[str, object]:
    """Name -> score; KeyError, TypeError or AttributeError: another form."""
    scores: dict[str, object] = {}
    for name, value in results.items():
        if name == "coherence_score":
            keys = [f"{kind}_consistency" for kind in _COHERENCE]
            scores.update((key, value[key]) for key in keys)
        elif name in _SCORED:
            scores[name] = value["Score"] if "Score" in value else value["overall_score"]
        else:
            raise KeyError(name)
    return scores


def _number(score: object) -> float:
    return score if isinstance(score, int | float) else 0
