"""The report of one benchmark run, or of two compared: one HTML page that needs nothing else.

Two systems are compared item by item; two judges of one system by how far they agree.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any, cast

import yaml

from inference.generation.files import html_template
from schemas import BadImageError, FoundryError
from warehouse import EncodedImage, Home, ImageStore
from warehouse.atomic import atomic_write

from ..core.statistics import Interval, agreement, mean_interval
from .results import Run

_SHOWN_ITEMS = 12
_THUMBNAIL = (256, 256)


def write_report(home: Home, runs: Sequence[Run], path: Path) -> Path:
    """Write the page of one run, or of two of the same benchmark.

    Raises:
        FoundryError: the runs are of different benchmarks.
    """
    atomic_write(path, _render(home, runs))
    return path


def render_runs(home: Home, names: Sequence[str]) -> str:
    """The page of the runs of these names, one or two, as HTML.

    Raises:
        FoundryError: there is no such run, or they are of different benchmarks.
    """
    return _render(home, [Run.read(home, name) for name in names])


def _render(home: Home, runs: Sequence[Run]) -> str:
    first, pair = runs[0], len(runs) == 2
    metric = first.metrics[0] if first.metrics else ""
    values = {run.name: run.values(metric) for run in runs}
    worst = {name: sorted(own, key=own.__getitem__)[:_SHOWN_ITEMS] for name, own in values.items()}
    same_system = pair and runs[0].system == runs[1].system
    judges = agreement(runs[0].labels, runs[1].labels) if same_system else None
    by_item = Counter(item for item, _ in judges.differing) if judges else Counter[str]()
    differing = [item for item, _ in by_item.most_common(_SHOWN_ITEMS)]
    wins, losses = _extremes(first, runs[1], metric) if pair and not judges else ([], [])
    items = {item for ids in (*worst.values(), wins, losses, differing) for item in ids}
    return html_template(__package__, "report.html", number=_number).render(
        runs=runs,
        metric=metric,
        summaries=[_summary(run) for run in runs],
        published=published_tables().get(first.benchmark),
        differences=compare_runs(*runs) if pair else [],
        worst=worst,
        wins=wins,
        losses=losses,
        judges=judges,
        differing=differing,
        answers={run.name: {row.item_id: row for row in run.answers} for run in runs},
        values=values,
        pictures=_thumbnails(home.images, _images(runs, items)),
    )


@dataclass(frozen=True)
class Difference:
    """A metric of two runs over the items that both have; the second minus the first."""

    metric: str
    gap: Interval
    wins: int
    ties: int
    losses: int


def compare_runs(first: Run, second: Run) -> list[Difference]:
    """Paired differences with bootstrap intervals over items; metrics that one lacks are left out.

    Raises:
        FoundryError: the runs are of different benchmarks.
    """
    if first.benchmark != second.benchmark:
        raise FoundryError(f"{first.name} and {second.name} are of different benchmarks")
    differences = []
    for metric in first.metrics:
        if gaps := [*_item_differences(first, second, metric).values()]:
            wins, losses = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
            counts = wins, len(gaps) - wins - losses, losses
            differences.append(Difference(metric, mean_interval(gaps), *counts))
    return differences


def _item_differences(first: Run, second: Run, metric: str) -> dict[str, float]:
    """Items that both have with the second's value minus the first's."""
    before, after = first.values(metric), second.values(metric)
    return {item: after[item] - before[item] for item in before if item in after}


def _extremes(first: Run, second: Run, metric: str) -> tuple[list[str], list[str]]:
    """Items that the second run wins most clearly, and those that it loses."""
    gaps, half = _item_differences(first, second, metric), _SHOWN_ITEMS // 2
    ordered = sorted(gaps, key=gaps.__getitem__)
    wins = [item for item in reversed(ordered) if gaps[item] > 0]
    return wins[:half], [item for item in ordered if gaps[item] < 0][:half]


@cache
def published_tables() -> Mapping[str, Mapping[str, Any]]:
    """The paper's tables by benchmark, and its ablation (table 5), in the unit of our results.

    `source`: where it is printed; `systems`: system -> metric -> value, as printed; `recomputed`:
    averages that follow from the cells, where printed ones do not.
    """
    text = Path(__file__).with_name("published.yaml").read_text("utf-8")
    return cast(Mapping[str, Mapping[str, Any]], yaml.safe_load(text))


def _summary(run: Run) -> dict[str, float | None]:
    """Cost and time of answers; None: not known of all of them."""
    costs = [row.cost_usd for row in run.answers if row.cost_usd is not None]
    seconds = [row.seconds for row in run.answers if row.seconds is not None]
    return {
        "usd": sum(costs) if costs and len(costs) == len(run.answers) else None,
        "mean_seconds": fmean(seconds) if seconds else None,
        "median_seconds": median(seconds) if seconds else None,
    }


def _images(runs: Sequence[Run], items: set[str]) -> set[str]:
    rows = [row for run in runs for row in run.answers if row.item_id in items]
    return {name for row in rows for name in (*row.input_images, *row.images) if name}


def _thumbnails(images: ImageStore, names: Iterable[str]) -> Mapping[str, str]:
    """sha256 -> data URL; images that are damaged or gone are left out."""

    def thumbnail(name: str) -> tuple[str, str | None]:
        try:
            small = images.get(name).image.copy()
        except BadImageError:
            return name, None
        small.thumbnail(_THUMBNAIL)
        return name, EncodedImage.of(small).encoded("webp", 80).data_url

    with ThreadPoolExecutor() as pool:
        return {name: url for name, url in pool.map(thumbnail, names) if url}


def _number(value: Any, digits: int = 3) -> str:
    """A missing one is a dash, never 0."""
    return "–" if value is None else f"{value:.{digits}f}"
