"""What ends growth: at how many prompts each limit is reached, and what one does about it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from . import storage
from .fluid import Stage
from .inputs import Costs, Hardware


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
    stored: storage.Stored

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
        run_gb = storage.run_memory_gb(self.costs, hardware, self.shard_size)
        name = f"runs fill the {hardware.memory_gb:g} GB of a machine"
        full = 0.0 if run_gb > hardware.memory_gb else math.inf
        yield Limit(name, "runs", full, "smaller shards, fewer runs")

    def _plan(self) -> Iterator[Limit]:
        days, usd = self.hardware.days, self.hardware.usd
        late = self._at(self.hours, days * 24)
        yield Limit(f"{days:g} days", "time", late, f"more of: {self.bottleneck.partition(',')[0]}")
        yield Limit(f"{usd:,.0f} USD", "money", self._at(self.usd, usd), "cheaper calls")
