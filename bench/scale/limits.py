"""What is stored, and what ends growth: at how many prompts each limit is reached, and why."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .efficiency import STAGES, Stage, calls_per_prompt
from .inputs import Costs, Hardware, Images

_LEASE_RENEWALS = 3 / 60  # a second, of a journal on S3 that is open
_SEGMENTS_LEFT = 1  # of a journal whose shard is compacted


@dataclass(frozen=True)
class Stored:
    """What is in the lake afterwards, and the requests that brought it there."""

    objects: dict[Stage, float]
    gigabytes: float
    puts: float
    gets: float
    history_gb: float

    @property
    def all_objects(self) -> float:
        return sum(self.objects.values())


def predict_stored(
    costs: Costs,
    hardware: Hardware,
    prompts: int,
    shard_size: int,
    images: Images,
    shard_seconds: dict[Stage, float],
) -> Stored:
    """Args: shard_seconds: how long a shard is in each stage, for its journal on an object store.

    A packed home is one after `interleave compact`: a pack of images a shard, journals merged.
    """
    workload, engine = costs.workloads[hardware.workload], costs.engine
    shards, attempts = prompts / shard_size, prompts * workload.attempts.value
    pictures = attempts * workload.images.value
    written = _segments(costs, hardware, shard_size, shard_seconds)
    left = written if images == "single" else dict.fromkeys(written, _SEGMENTS_LEFT)
    objects = {stage: shards * (segments + _leases(hardware)) for stage, segments in left.items()}
    objects["runs"] = shards * engine.table_files.value
    objects["images"] = shards if images == "packed" else pictures
    leases = shards * sum(shard_seconds.values()) * _LEASE_RENEWALS
    packing = (pictures, shards) if images == "packed" else (0.0, 0.0)
    scored = 2 * attempts  # the scorer reads the images before and after
    kilobytes = attempts * (workload.row_kilobytes.value + workload.journal_kilobytes.value)
    return Stored(
        objects=objects,
        gigabytes=(pictures * workload.image_megabytes.value + kilobytes / 1e3) / 1e3,
        puts=pictures
        + shards * (engine.table_files.value + sum(written.values()))
        + leases
        + packing[1],
        gets=attempts + scored + packing[0],
        history_gb=shards / hardware.shards_per_run * engine.history_kilobytes.value / 1e6,
    )


def storage_usd(costs: Costs, hardware: Hardware, found: Stored, months: float) -> float:
    """Of requests, and of keeping the bytes for so many months; a local disk costs nothing."""
    if hardware.storage == "local":
        return 0.0
    storage = costs.storage
    requests = found.puts * storage.put_usd_per_million.value
    requests += found.gets * storage.get_usd_per_million.value
    return requests / 1e6 + found.gigabytes * storage.usd_per_gb_month.value * months


def run_memory_gb(costs: Costs, hardware: Hardware, shard_size: int) -> float:
    """Of the runs on one machine."""
    engine, runs = costs.engine, -(-hardware.runs // hardware.machines)
    more = max(0, shard_size - 100) * engine.memory_megabytes_per_prompt.value / 1e3
    return runs * (engine.memory_gb.value + more)


def curation_memory_gb(costs: Costs, hardware: Hardware, prompts: int) -> float:
    curation = costs.curation
    millions = prompts * costs.workloads[hardware.workload].attempts.value / 1e6
    return curation.memory_gb.value + millions * curation.memory_gb_per_million.value


def _leases(hardware: Hardware) -> int:
    return int(hardware.storage == "s3")


def _segments(
    costs: Costs, hardware: Hardware, shard_size: int, shard_seconds: dict[Stage, float]
) -> dict[Stage, float]:
    """Files of a shard's journal by stage. On an object store the lines that come while a segment
    is being stored are the next one: calls that are far apart have one each."""
    if hardware.storage == "local":
        return {"plans": 1.0, "verdicts": 1.0, "scores": 1.0}
    segments: dict[Stage, float] = {}
    journals = {"plans": ("plans",), "verdicts": ("draws", "verdicts"), "scores": ("scores",)}
    for journal, stages in journals.items():
        calls = (calls_per_prompt(costs, hardware, STAGES[stage]) for stage in stages)
        lines = shard_size * sum(calls) * costs.storage.appends.value
        rate = lines / max(sum(shard_seconds[stage] for stage in stages), 1e-9)
        segments[journal] = lines / (1 + rate * costs.storage.put_seconds.value)
    return segments


@dataclass(frozen=True)
class Limit:
    """Something that ends growth: at `prompts` it is reached."""

    name: str
    stage: Stage
    prompts: float
    remedy: str


@dataclass(frozen=True)
class Limits:
    """The limits of what was predicted for a number of prompts.

    What is linear in prompts is reached at a share of these.
    """

    costs: Costs
    hardware: Hardware
    prompts: int
    shard_size: int
    hours: float
    usd: float
    bottleneck: str
    stored: Stored

    def in_order(self) -> tuple[Limit, ...]:
        """All of them, the lowest first."""
        found = [*self._dagster(), *self._storage(), *self._memory(), *self._plan()]
        return tuple(sorted(found, key=lambda limit: limit.prompts))

    def _at(self, now: float, most: float) -> float:
        return self.prompts * most / now if now else math.inf

    def _dagster(self) -> Iterator[Limit]:
        thresholds = self.costs.thresholds
        shards = self.prompts / self.shard_size
        noop = shards * self.costs.engine.noop_seconds.value
        most, name = thresholds.partitions.value, "partitions of an asset"
        yield Limit(
            f"Dagster's {most:,.0f} {name}", "runs", self._at(shards, most), "larger shards"
        )
        most, now = thresholds.history_gb.value, self.stored.history_gb
        remedy = "larger shards, several in a run"
        yield Limit(f"Dagster's history of {most:g} GB", "runs", self._at(now, most), remedy)
        most, remedy = thresholds.noop_seconds.value, "larger shards, an index of partitions"
        name = f"a run with nothing to do takes {most:g} s"
        yield Limit(name, "runs", self._at(noop, most), remedy)

    def _storage(self) -> Iterator[Limit]:
        most, now = self.costs.thresholds.objects.value, self.stored.all_objects
        remedy = "packs of images, merged journals"
        yield Limit(f"{most:.0e} objects", "images", self._at(now, most), remedy)
        disk, now = self.hardware.disk_gb, self.stored.gigabytes
        full = self._at(now, disk) if self.hardware.storage == "local" else math.inf
        yield Limit(f"a disk of {disk / 1e3:g} TB", "images", full, "an object store")

    def _memory(self) -> Iterator[Limit]:
        hardware, curation = self.hardware, self.costs.curation
        attempts = self.costs.workloads[hardware.workload].attempts.value
        gb_per_prompt = curation.memory_gb_per_million.value * attempts / 1e6
        free = hardware.memory_gb - curation.memory_gb.value
        full = free / gb_per_prompt if gb_per_prompt else math.inf
        yield Limit(f"curation fills {hardware.memory_gb:g} GB", "curation", full, "more memory")
        run_gb = run_memory_gb(self.costs, hardware, self.shard_size)
        name = f"runs fill the {hardware.memory_gb:g} GB of a machine"
        full = 0.0 if run_gb > hardware.memory_gb else math.inf
        yield Limit(name, "runs", full, "smaller shards, fewer runs")

    def _plan(self) -> Iterator[Limit]:
        days, usd = self.hardware.days, self.hardware.usd
        late = self._at(self.hours, days * 24)
        yield Limit(f"{days:g} days", "time", late, f"more of: {self.bottleneck.partition(',')[0]}")
        yield Limit(f"{usd:,.0f} USD", "money", self._at(self.usd, usd), "cheaper calls")
