"""Time, money, objects and memory of a number of prompts, with intervals, and the first limits.

The least time is that of the busiest resource (`fluid.py`). How much longer it takes is measured in
a simulation of some shards (`efficiency.py`). Intervals are those of the costs' errors: 5th to 95th
percentile of `SAMPLES` draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from . import storage
from .efficiency import efficiency as simulated_efficiency
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
from .inputs import Costs, Hardware, Images
from .limits import Limit, Limits

SAMPLES = 200


@dataclass(frozen=True)
class PredictedValue:
    """A predicted value, and its 5th and 95th percentile."""

    value: float
    low: float
    high: float


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
    hours: PredictedValue
    usd: PredictedValue
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
    busy = efficiency or simulated_efficiency(costs, hardware, prompts, shard_size, seed)
    size = _Size(hardware, prompts, shard_size, images, busy)
    point = size.of(costs)
    random = Random(seed)
    drawn = [size.of(perturbed(costs, random)) for _ in range(samples)]
    return Prediction(
        prompts=prompts,
        shard_size=shard_size,
        images=images,
        stages=point.stages,
        bottleneck=point.bottleneck,
        efficiency=busy,
        hours=_interval(point.hours, [each.hours for each in drawn]),
        usd=_interval(point.usd, [each.usd for each in drawn]),
        objects=point.stored.all_objects,
        gigabytes=point.stored.gigabytes,
        memory_gb=max(stage.memory_gb for stage in point.stages),
        limits=size.limits(costs, point).in_order(),
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
            StagePrediction("curation", "cores", curation_hours, 0.0, 0.0, curation_gb),
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
        """Worker processes on one machine, tasks on all of a cluster."""
        hardware, curation = self.hardware, costs.curation
        cores = hardware.machines * hardware.cores
        millions = self.prompts * costs.workloads[hardware.workload].attempts.value / 1e6
        return millions * curation.cpu_seconds_per_million.value / cores / 3600

    def _stored(self, costs: Costs, alone: dict[Stage, float]) -> storage.Stored:
        """`alone`: seconds per prompt of the stages, with all runs."""
        of_a_shard = self.shard_size * self.hardware.runs / self.efficiency
        seconds = {stage: each * of_a_shard for stage, each in alone.items()}
        return storage.stored(
            costs, self.hardware, self.prompts, self.shard_size, self.images, seconds
        )

    def limits(self, costs: Costs, point: _Point) -> Limits:
        return Limits(
            costs,
            self.hardware,
            self.prompts,
            self.shard_size,
            point.hours,
            point.usd,
            point.bottleneck,
            point.stored,
        )


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


def _interval(value: float, drawn: Sequence[float]) -> PredictedValue:
    if not drawn:
        return PredictedValue(value, value, value)
    ordered = sorted(drawn)
    last = len(ordered) - 1
    return PredictedValue(value, ordered[round(0.05 * last)], ordered[round(0.95 * last)])
