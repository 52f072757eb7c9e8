"""Objects, bytes, requests and memory of a number of prompts."""

from dataclasses import dataclass

from .fluid import STAGES, Stage, calls_per_prompt
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


def stored(
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


def usd(costs: Costs, hardware: Hardware, found: Stored, months: float) -> float:
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
