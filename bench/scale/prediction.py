"""Time, money, objects and memory of a number of prompts, with intervals, and the first limits.

The least time is that of the busiest resource (`fluid.py`). How much longer it takes is measured in
a simulation of some shards (`simulation.py`), of a system that is scaled down if it has too many
calls. Intervals are those of the costs' errors: 5th to 95th percentile of `SAMPLES` draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from . import storage
from .fluid import (
    MONTH_SECONDS,
    STAGES,
    Stage,
    Use,
    bound_seconds,
    call_costs,
    calls_per_prompt,
    stage_seconds,
    uses,
)
from .inputs import Costs, Hardware, Images, ModelServer
from .simulation import Factory

SAMPLES = 200
_MOST_CALLS = 60_000  # of a simulation, which takes a second for about as many
_FEWEST_RUNS, _SMALLEST_SHARD = 6, 100  # of a system that is scaled down
_WAVES = 3  # shards of every run


@dataclass(frozen=True)
class Interval:
    """A predicted value, and its 5th and 95th percentile."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Limit:
    """Something that ends growth: at `prompts` it is reached."""

    name: str
    stage: Stage
    prompts: float
    remedy: str


@dataclass(frozen=True)
class StagePrediction:
    """A stage by itself: hours if nothing else ran, and what it leaves."""

    stage: Stage
    bottleneck: str
    hours: float
    usd: float
    objects: float
    memory_gb: float


@dataclass(frozen=True)
class Prediction:
    """Everything about a number of prompts."""

    prompts: int
    shard_size: int
    images: Images
    stages: tuple[StagePrediction, ...]
    bottleneck: str
    efficiency: float  # the bottleneck's share of the time that it works
    hours: Interval
    usd: Interval
    objects: float
    gigabytes: float
    memory_gb: float  # of the machine that has most in use
    limits: tuple[Limit, ...]  # the lowest first

    @property
    def first_limit(self) -> Limit | None:
        """The first one that these prompts reach."""
        return next((limit for limit in self.limits if limit.prompts <= self.prompts), None)


def predict(
    costs: Costs,
    hardware: Hardware,
    prompts: int,
    shard_size: int,
    images: Images = "single",
    seed: int = 0,
    samples: int = SAMPLES,
    efficiency: float | None = None,
) -> Prediction:
    """Args: efficiency: of another number of prompts, if both are steady."""
    efficiency = efficiency or _efficiency(costs, hardware, prompts, shard_size, seed)
    size = _Size(hardware, prompts, shard_size, images, efficiency)
    point = size.of(costs)
    random = Random(seed)
    drawn = [size.of(perturbed(costs, random)) for _ in range(samples)]
    return Prediction(
        prompts=prompts,
        shard_size=shard_size,
        images=images,
        stages=point.stages,
        bottleneck=point.bottleneck,
        efficiency=efficiency,
        hours=_interval(point.hours, [each.hours for each in drawn]),
        usd=_interval(point.usd, [each.usd for each in drawn]),
        objects=point.stored.all_objects,
        gigabytes=point.stored.gigabytes,
        memory_gb=max(stage.memory_gb for stage in point.stages),
        limits=tuple(sorted(size.limits(costs, point), key=lambda limit: limit.prompts)),
    )


@dataclass(frozen=True)
class _Point:
    """A prediction with one set of costs."""

    stages: tuple[StagePrediction, ...]
    bottleneck: str
    hours: float
    usd: float
    stored: storage.Stored


@dataclass(frozen=True)
class _Size:
    """What is predicted; costs vary."""

    hardware: Hardware
    prompts: int
    shard_size: int
    images: Images
    efficiency: float

    def of(self, costs: Costs) -> _Point:
        hardware = self.hardware
        found = uses(costs, hardware, self.shard_size)
        alone = stage_seconds(found)
        seconds, bottleneck = self._seconds_per_prompt(found)
        loop_hours = self.prompts * seconds / 3600
        curation_hours = self._curation_hours(costs)
        hours = loop_hours + curation_hours
        stored = self._stored(costs, {stage: seconds for stage, (seconds, _) in alone.items()})
        months = max(1.0, hours * 3600 / MONTH_SECONDS)
        bytes_usd = storage.usd(costs, hardware, stored, months)
        machines = hardware.machines * hours * hardware.usd_per_machine_hour
        gpus = hardware.gpus * loop_hours * hardware.usd_per_gpu_hour
        stages = [
            self._stage(costs, stored, stage, *alone[stage]) for stage in STAGES if stage in alone
        ]
        used = sum(stage.usd for stage in stages) - self._provider_usd(costs)
        curation_gb = storage.curation_memory_gb(costs, hardware, self.prompts)
        run_gb = storage.run_memory_gb(costs, hardware, self.shard_size)
        seconds, resource = alone["runs"]
        stages += [
            StagePrediction(
                "runs",
                resource,
                self.prompts * seconds / 3600,
                machines,
                stored.objects["runs"],
                run_gb,
            ),
            StagePrediction("images", "object store", 0.0, bytes_usd, stored.objects["images"], 0),
            StagePrediction("curation", "one process", curation_hours, 0.0, 0.0, curation_gb),
            StagePrediction("idle GPUs", "", 0.0, gpus - used, 0.0, 0.0),
        ]
        return _Point(tuple(stages), bottleneck, hours, sum(s.usd for s in stages), stored)

    def _seconds_per_prompt(self, found: list[Use]) -> tuple[float, str]:
        """A spending cap is a limit of the month, which no queue makes worse, and of which the
        first month's money is there at once."""
        bound, resource = bound_seconds([use for use in found if not use.is_cap])
        queues = (bound / self.efficiency, f"{resource}, busy {self.efficiency:.0%}")
        if capped := [use for use in found if use.is_cap]:
            seconds, cap = bound_seconds(capped)
            return max(queues, (seconds - MONTH_SECONDS / self.prompts, cap))
        return queues

    def _stage(
        self, costs: Costs, stored: storage.Stored, stage: Stage, seconds: float, resource: str
    ) -> StagePrediction:
        usd = self._calls(costs, stage) * self._usd_per_call(costs, stage)
        gpu = self._gpu_seconds(costs, stage) / 3600 * self.hardware.usd_per_gpu_hour
        hours = self.prompts * seconds / 3600
        return StagePrediction(
            stage, resource, hours, usd + gpu, stored.objects.get(stage, 0.0), 0.0
        )

    def _calls(self, costs: Costs, stage: Stage) -> float:
        return self.prompts * calls_per_prompt(costs, self.hardware, STAGES[stage])

    def _usd_per_call(self, costs: Costs, stage: Stage) -> float:
        role = STAGES[stage]
        model = self.hardware.roles[role]
        server = self.hardware.servers.get(model)
        return costs.models[model].usd(role) * (server.price if server else 1.0)

    def _provider_usd(self, costs: Costs) -> float:
        return sum(self._calls(costs, stage) * self._usd_per_call(costs, stage) for stage in STAGES)

    def _gpu_seconds(self, costs: Costs, stage: Stage) -> float:
        """GPU seconds that a stage keeps busy."""
        role = STAGES[stage]
        server = self.hardware.servers.get(self.hardware.roles[role])
        if server is None or not server.gpus:
            return 0.0
        seconds = call_costs(costs, self.hardware, role).seconds.value
        return self._calls(costs, stage) * seconds / server.slots_per_gpu / (1 - server.errors)

    def _curation_hours(self, costs: Costs) -> float:
        """One pass uses two cores, as measured; two passes those of all machines."""
        hardware = self.hardware
        cores = min(2, hardware.cores)
        if hardware.curation == "two_passes":
            cores = hardware.machines * hardware.cores
        millions = self.prompts * costs.workloads[hardware.workload].attempts.value / 1e6
        curation = costs.curation[hardware.curation]
        return millions * curation.cpu_seconds_per_million.value / cores / 3600

    def _stored(self, costs: Costs, alone: dict[Stage, float]) -> storage.Stored:
        """`alone`: seconds per prompt of the stages, with all runs."""
        of_a_shard = self.shard_size * self.hardware.runs / self.efficiency
        seconds = {stage: each * of_a_shard for stage, each in alone.items()}
        return storage.stored(
            costs, self.hardware, self.prompts, self.shard_size, self.images, seconds
        )

    def limits(self, costs: Costs, point: _Point) -> list[Limit]:
        """What ends growth; what is linear in prompts is reached at a share of these."""
        hardware, thresholds = self.hardware, costs.thresholds
        shards = self.prompts / self.shard_size
        noop = shards * costs.engine.noop_seconds.value
        curation = costs.curation[hardware.curation]
        gb_per_prompt = (
            curation.memory_gb_per_million.value
            * costs.workloads[hardware.workload].attempts.value
            / 1e6
        )
        free = hardware.memory_gb - curation.memory_gb.value
        run_gb = storage.run_memory_gb(costs, hardware, self.shard_size)

        def at(now: float, most: float) -> float:
            return self.prompts * most / now if now else math.inf

        return [
            Limit(
                f"Dagster's {thresholds.partitions.value:,.0f} partitions of an asset",
                "runs",
                at(shards, thresholds.partitions.value),
                "larger shards",
            ),
            Limit(
                f"Dagster's history of {thresholds.history_gb.value:g} GB",
                "runs",
                at(point.stored.history_gb, thresholds.history_gb.value),
                "larger shards, several in a run",
            ),
            Limit(
                f"a run with nothing to do takes {thresholds.noop_seconds.value:g} s",
                "runs",
                at(noop, thresholds.noop_seconds.value),
                "larger shards, an index of partitions",
            ),
            Limit(
                f"{thresholds.objects.value:.0e} objects",
                "images",
                at(point.stored.all_objects, thresholds.objects.value),
                "packs of images, merged journals",
            ),
            Limit(
                f"a disk of {hardware.disk_gb / 1e3:g} TB",
                "images",
                at(point.stored.gigabytes, hardware.disk_gb)
                if hardware.storage == "local"
                else math.inf,
                "an object store",
            ),
            Limit(
                f"curation fills {hardware.memory_gb:g} GB",
                "curation",
                free / gb_per_prompt if gb_per_prompt else math.inf,
                "two passes",
            ),
            Limit(
                f"runs fill the {hardware.memory_gb:g} GB of a machine",
                "runs",
                0.0 if run_gb > hardware.memory_gb else math.inf,
                "smaller shards, fewer runs",
            ),
            Limit(
                f"{hardware.days:g} days",
                "time",
                at(point.hours, hardware.days * 24),
                f"more of: {point.bottleneck.partition(',')[0]}",
            ),
            Limit(
                f"{hardware.usd:,.0f} USD", "money", at(point.usd, hardware.usd), "cheaper calls"
            ),
        ]


def perturbed(costs: Costs, random: Random) -> Costs:
    """Costs in which every quantity with an error has another value."""

    def vary(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        if error := node.get("error"):
            sigma = math.sqrt(math.log1p(error**2))  # log-normal, mean 1
            return node | {"value": node["value"] * random.lognormvariate(-(sigma**2) / 2, sigma)}
        return {key: vary(value) for key, value in node.items()}

    return Costs.model_validate(vary(costs.model_dump()))


def _interval(value: float, drawn: Sequence[float]) -> Interval:
    if not drawn:
        return Interval(value, value, value)
    ordered = sorted(drawn)
    last = len(ordered) - 1
    return Interval(value, ordered[round(0.05 * last)], ordered[round(0.95 * last)])


def is_steady(hardware: Hardware, prompts: int, shard_size: int) -> bool:
    """Whether every run has so many shards that more of them take as long each."""
    return prompts / shard_size > _WAVES * hardware.runs


def simulated_seconds(
    costs: Costs, hardware: Hardware, prompts: int, shard_size: int, seed: int
) -> float:
    """Of all prompts, shard by shard."""
    full, rest = divmod(prompts, shard_size)
    shards = [shard_size] * full + ([rest] if rest else [])
    stagger = 0.0
    if hardware.staggered:  # over the time of a shard of every run
        stagger = bound_seconds(uses(costs, hardware, shard_size))[0] * shard_size
    return Factory(costs, hardware, shards, seed, stagger).run().seconds


def _efficiency(
    costs: Costs, hardware: Hardware, prompts: int, shard_size: int, seed: int
) -> float:
    """Least time of the busiest resource, as a share of the simulated time.

    Few calls are simulated all; of many shards the first ones, and from `_WAVES` shards a run on
    every shard takes as long as those after the first.
    """
    per_prompt = sum(calls_per_prompt(costs, hardware, role) for role in hardware.roles)
    waves = prompts / shard_size / hardware.runs
    steady = is_steady(hardware, prompts, shard_size)
    size, whole = min(shard_size, prompts), per_prompt * prompts <= _MOST_CALLS
    if not whole:
        costs, hardware, size = scaled(costs, hardware, size, _MOST_CALLS / per_prompt / _WAVES)
    bound, _ = bound_seconds([use for use in uses(costs, hardware, size) if not use.is_cap])
    if whole or not steady:
        count = prompts if whole else max(1, round(waves * hardware.runs)) * size
        return bound * count / simulated_seconds(costs, hardware, count, size, seed)
    wave = hardware.runs * size
    first = simulated_seconds(costs, hardware, wave, size, seed)
    all_waves = simulated_seconds(costs, hardware, _WAVES * wave, size, seed)
    return bound * (_WAVES - 1) * wave / (all_waves - first)


def scaled(
    costs: Costs, hardware: Hardware, shard_size: int, most_prompts: float
) -> tuple[Costs, Hardware, int]:
    """A smaller system of the same proportions: fewer runs, and if that is not enough smaller
    shards, with as much less of everything that they share."""
    by_runs = min(hardware.runs * shard_size / most_prompts, hardware.runs / _FEWEST_RUNS)
    runs = max(1, math.floor(hardware.runs / max(1.0, by_runs)))
    fewer = hardware.runs / runs
    smaller = max(1.0, min(runs * shard_size / most_prompts, shard_size / _SMALLEST_SHARD))
    slower = {model: _slower(server, fewer * smaller) for model, server in hardware.servers.items()}
    changes = {
        "runs": runs,
        "machines": 1,
        "cores": max(1, round(hardware.machines * hardware.cores / fewer)),
        "generator_slots": max(1, round(hardware.generator_slots / smaller)),
        "agent_slots": max(1, round(hardware.agent_slots / smaller)),
        "servers": {
            model: _scaled_server(server, fewer * smaller)
            for model, server in hardware.servers.items()
        },
    }
    less = _with_calls(
        costs, {"cpu_seconds": dict.fromkeys(costs.models, smaller), "seconds": slower}
    )
    return less, hardware.model_copy(update=changes), round(shard_size / smaller)


def _scaled_slots(server: ModelServer, factor: float) -> int | None:
    return math.ceil(server.slots / factor) if server.slots else None


def _slower(server: ModelServer, factor: float) -> float:
    """Slots are whole: as calls take longer, the server answers as many as its share."""
    slots = _scaled_slots(server, factor)
    return slots * factor / server.slots if slots and server.slots else 1.0


def _scaled_server(server: ModelServer, factor: float) -> ModelServer:
    def less(value: float | None) -> float | None:
        return value / factor if value else None

    return server.model_copy(
        update={
            "gpus": 0,
            "concurrency": _scaled_slots(server, factor),
            "requests_per_minute": less(server.requests_per_minute),
            "tokens_per_minute": less(server.tokens_per_minute),
            "usd_per_month": None,
        }
    )


def _with_calls(costs: Costs, factors: dict[str, dict[str, float]]) -> Costs:
    """Other `seconds` and `cpu_seconds` (quantity -> model -> factor) of all calls.

    A run with fewer calls is as busy if each takes more CPU.
    """
    data = costs.model_dump()
    for name, by_model in factors.items():
        for model, factor in by_model.items():
            for call in data["models"][model]["roles"].values():
                call[name]["value"] *= factor
    return Costs.model_validate(data)
