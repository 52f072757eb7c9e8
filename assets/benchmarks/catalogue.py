"""The benchmarks by name, and which of their items a profile runs."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path

from inference.calls.hashing import stable_hash
from schemas import FoundryError
from warehouse import Home

from .benchmark import Benchmark, Item
from .comm import CoMM
from .opening import Opening
from .rise import Rise
from .settings import BenchmarkRunSettings
from .sketch import SketchBenchmark
from .sketch_tasks import SHAPES
from .ueval import UEval
from .wise import Wise

_SKETCH = "sketch-"
_OFFICIAL: dict[str, Callable[[Path], Benchmark]] = {
    "ueval": UEval,
    "comm-task1": partial(CoMM, task=1),
    "comm-task2": partial(CoMM, task=2),
    "comm-task3": partial(CoMM, task=3),
    "comm-task4": partial(CoMM, task=4),
    "wise-legacy": partial(Wise, version="legacy"),
    "wise-verified": partial(Wise, version="verified"),
    "rise": partial(Rise, scorer="original"),
    "rise-fixed": partial(Rise, scorer="fixed"),
    "opening": Opening,
}


def names() -> list[str]:
    """All benchmarks."""
    return [*_OFFICIAL, *(f"{_SKETCH}{shape}" for shape in SHAPES)]


def open_benchmark(name: str, settings: BenchmarkRunSettings, home: Home) -> Benchmark:
    """A benchmark with all its items.

    Raises:
        FoundryError: there is none of this name, it needs a `source`, or its files are damaged.
    """
    if name not in names():
        raise FoundryError(f"no benchmark {name}; there are: {', '.join(names())}")
    if name.startswith(_SKETCH):
        folder, shape = home.local / "benchmarks" / name, name.removeprefix(_SKETCH)
        items = settings.limit or 40
        return SketchBenchmark.open(shape, folder, settings.seed, settings.difficulty, items)
    if settings.source is None:
        raise FoundryError(
            f"benchmark {name} needs its official files: name their folder with --source, or as "
            f"`benchmarks.run.{name}.source` in the profile"
        )
    source = official_files(settings.source)
    return _open_official(name, source, source.stat().st_mtime_ns)


def official_files(source: str) -> Path:
    """A local file or folder; else the snapshot of a data set on the Hub, by its id.

    Raises:
        FoundryError: there is neither.
    """
    path = Path(source).expanduser()
    if path.exists():
        return path
    if path.is_absolute() or len(path.parts) != 2:
        raise FoundryError(
            f"{source}: does not exist; name a copy of the official files, or a data set on the "
            "Hub, such as zlab-princeton/UEval"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(source, repo_type="dataset"))
    except (OSError, HFValidationError) as error:
        reason = str(error).splitlines()[0]
        raise FoundryError(
            f"{source}: no such file or folder, nor to be had from the Hub ({reason}); copy the "
            "official files"
        ) from error


@lru_cache(maxsize=8)
def _open_official(name: str, source: Path, _changed_at: int) -> Benchmark:
    """A benchmark of the field, from a copy of its official files; read once a process."""
    return _OFFICIAL[name](source)


def sample(items: Sequence[Item], limit: int | None) -> list[Item]:
    """At most `limit` items, as many of every group, the same in every run; in their order."""
    if limit is None or limit >= len(items):
        return list(items)
    groups: dict[str, list[Item]] = defaultdict(list)
    for item in sorted(items, key=lambda item: stable_hash("sample", item.item_id)):
        groups[item.group].append(item)
    rounds = zip_longest(*groups.values())
    taken = [item for each in rounds for item in each if item][:limit]
    chosen = {item.item_id for item in taken}
    return [item for item in items if item.item_id in chosen]


def shards(items: Sequence[Item], size: int) -> list[list[Item]]:
    """Items of the Dagster partitions."""
    return [list(items[start : start + size]) for start in range(0, len(items), size)]
