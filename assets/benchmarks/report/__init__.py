"""The report of one benchmark run, or of two compared: one HTML page that needs nothing else.

Two systems are compared item by item; two judges of one system by how far they agree.
"""

import base64
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from PIL import Image
from pydantic import TypeAdapter

from schemas import BadImageError
from schemas.benchmarks import BenchmarkAnswerRow
from warehouse import Home, ImageStore
from warehouse.atomic import atomic_write

from ...core.statistics import Agreement, agreement, disagreements
from .run import Difference, Run, compare_runs, item_differences, run_names

__all__ = [
    "Difference",
    "Run",
    "compare_runs",
    "published_table",
    "render_runs",
    "run_names",
    "write_report",
]

_SHOWN_ITEMS = 12
_THUMBNAIL = (256, 256)


def write_report(home: Home, runs: Sequence[Run], path: Path) -> Path:
    """Write the page of one run, or of two of the same benchmark.

    Raises:
        FoundryError: the runs are of different benchmarks.
    """
    atomic_write(path, render_report(home, runs))
    return path


def render_runs(home: Home, names: Sequence[str]) -> str:
    """The page of the runs of these names.

    Raises:
        FoundryError: there is no such run, or they are of different benchmarks.
    """
    return render_report(home, [Run.read(home, name) for name in names])


def render_report(home: Home, runs: Sequence[Run]) -> str:
    """The page of one run, or of two of the same benchmark, as HTML.

    Raises:
        FoundryError: the runs are of different benchmarks.
    """
    first = runs[0]
    metric = first.metrics[0] if first.metrics else ""
    shown = {run.name: _worst(run, metric) for run in runs}
    judges = _judges(runs)
    wins, losses = ([], []) if judges else _extremes(runs, metric)
    differing = judges.items if judges else []
    items = {item for ids in (*shown.values(), wins, losses, differing) for item in ids}
    return _template().render(
        runs=runs,
        metric=metric,
        summaries=[_summary(run) for run in runs],
        published=published_table(first.benchmark),
        differences=compare_runs(*runs) if len(runs) == 2 else [],
        worst=shown,
        wins=wins,
        losses=losses,
        judges=judges,
        answers={run.name: {row.item_id: row for row in run.answers} for run in runs},
        values={run.name: run.values(metric) for run in runs},
        pictures=_thumbnails(home.images, _images(runs, items)),
    )


@dataclass(frozen=True)
class PublishedTable:
    """A benchmark's table in the paper, in the unit of our results.

    Args:
        source: where it is printed.
        systems: system -> metric -> value, as printed.
        recomputed: averages that follow from the cells, where printed ones do not.
    """

    source: str
    systems: Mapping[str, Mapping[str, float]]
    recomputed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@cache
def _published() -> Mapping[str, PublishedTable]:
    text = Path(__file__).with_name("published.yaml").read_text("utf-8")
    return TypeAdapter(dict[str, PublishedTable]).validate_python(yaml.safe_load(text))


def published_table(benchmark: str) -> PublishedTable | None:
    """The paper's table of a benchmark; None: it has none."""
    return _published().get(benchmark)


def _summary(run: Run) -> dict[str, float | None]:
    """Cost and time of answers; None: not known of all of them."""
    costs = [row.cost_usd for row in run.answers if row.cost_usd is not None]
    seconds = [row.seconds for row in run.answers if row.seconds is not None]
    return {
        "usd": sum(costs) if costs and len(costs) == len(run.answers) else None,
        "mean_seconds": fmean(seconds) if seconds else None,
        "median_seconds": median(seconds) if seconds else None,
    }


def _worst(run: Run, metric: str) -> list[str]:
    values = run.values(metric)
    return sorted(values, key=lambda item: values[item])[:_SHOWN_ITEMS]


def _extremes(runs: Sequence[Run], metric: str) -> tuple[list[str], list[str]]:
    """Items that the second run wins most clearly, and those that it loses."""
    if len(runs) < 2:
        return [], []
    gaps, half = item_differences(runs[0], runs[1], metric), _SHOWN_ITEMS // 2
    ordered = sorted(gaps, key=lambda item: gaps[item])
    wins = [item for item in reversed(ordered) if gaps[item] > 0]
    return wins[:half], [item for item in ordered if gaps[item] < 0][:half]


@dataclass(frozen=True)
class _Judges:
    """How far two judges of one system agree; `items`: where they differ, most questions first."""

    agreement: Agreement
    items: list[str]


def _judges(runs: Sequence[Run]) -> _Judges | None:
    """None where the runs are not one system's, or have no question in common."""
    if len(runs) < 2 or runs[0].system != runs[1].system:
        return None
    first, second = (run.labels for run in runs)
    if not first.keys() & second.keys():
        return None
    differing = Counter(item for item, _ in disagreements(first, second))
    items = [item for item, _ in differing.most_common(_SHOWN_ITEMS)]
    return _Judges(agreement(first, second), items)


def _images(runs: Sequence[Run], items: Iterable[str]) -> set[str]:
    chosen = set(items)
    rows: list[BenchmarkAnswerRow] = [
        row for run in runs for row in run.answers if row.item_id in chosen
    ]
    return {name for row in rows for name in (*row.input_images, *row.images) if name}


def _thumbnails(images: ImageStore, names: Iterable[str]) -> Mapping[str, str]:
    """sha256 -> data URL; images that are damaged or gone are left out."""

    def thumbnail(name: str) -> tuple[str, str | None]:
        try:
            return name, _data_url(images.get(name).image)
        except BadImageError:
            return name, None

    with ThreadPoolExecutor() as pool:
        return {name: url for name, url in pool.map(thumbnail, names) if url}


def _data_url(image: Image.Image) -> str:
    small, buffer = image.convert("RGB"), io.BytesIO()
    small.thumbnail(_THUMBNAIL)
    small.save(buffer, "WEBP", quality=80)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = _number
    return environment.get_template("report.html")


def _number(value: Any, digits: int = 3) -> str:
    """A missing one is a dash, never 0."""
    return "–" if value is None else f"{value:.{digits}f}"
