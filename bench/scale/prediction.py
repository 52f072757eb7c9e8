"""Time, money, objects and memory of a number of prompts, with intervals, and the first limits.

The least time is that of the busiest resource; how much longer it takes is measured in a simulation
of some shards (`efficiency.py`). Intervals are those of the costs' errors: 5th to 95th percentile
of `SAMPLES` draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from .efficiency import (
    MONTH_SECONDS,
    STAGES,
    Stage,
    Use,
    bound_seconds,
    call_costs,
    calls_per_prompt,
    is_steady,
    stage_seconds,
    uses,
)
from .efficiency import efficiency as simulated_efficiency
from .inputs import Costs, Hardware, Images, load_hardware
from .limits import (
    Limit,
    Limits,
    Stored,
    curation_memory_gb,
    predict_stored,
    run_memory_gb,
    storage_usd,
)

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
    stored: Stored


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
        bytes_usd = storage_usd(costs, hardware, stored, months)
        machines = hardware.machines * hours * hardware.usd_per_machine_hour
        gpus = hardware.gpus * loop_hours * hardware.usd_per_gpu_hour
        stages = [
            self._stage(costs, stored, stage, *alone[stage]) for stage in STAGES if stage in alone
        ]
        used = sum(stage.usd for stage in stages) - self._provider_usd(costs)
        curation_gb = curation_memory_gb(costs, hardware, self.prompts)
        run_gb = run_memory_gb(costs, hardware, self.shard_size)
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
        self, costs: Costs, stored: Stored, stage: Stage, seconds: float, resource: str
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

    def _stored(self, costs: Costs, alone: dict[Stage, float]) -> Stored:
        """`alone`: seconds per prompt of the stages, with all runs."""
        of_a_shard = self.shard_size * self.hardware.runs / self.efficiency
        seconds = {stage: each * of_a_shard for stage, each in alone.items()}
        return predict_stored(
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


SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
# Hardware, shard size, images, label.
SYSTEMS: tuple[tuple[str, int, Images, str], ...] = (
    ("node", 100, "single", "one node, shards of 100"),
    ("cluster", 100, "single", "cluster as it is, shards of 100"),
    ("cluster-plan", 2_000, "packed", "cluster by the plan, shards of 2,000"),
)


def save_plot(path: Path, costs: Costs, seed: int = 0) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.6), layout="constrained")
    left, *others = figure.subplots(1, 3, width_ratios=(1.1, 1, 1))
    for system in SYSTEMS:
        found = _predictions(costs, system, seed)
        left.plot(SIZES, [each.hours.value / 24 for each in found], marker="o", label=system[3])
        bounds = ([each.hours.low / 24 for each in found], [each.hours.high / 24 for each in found])
        left.fill_between(SIZES, *bounds, alpha=0.2)
        if system is not SYSTEMS[0]:
            _limits(others[SYSTEMS.index(system) - 1], found[-1], system[3])
    left.axhline(30, color="grey", linestyle=":", linewidth=1)
    left.set(xscale="log", yscale="log", xlabel="prompts", title="Days (90 % interval)")
    left.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def _predictions(costs: Costs, system: tuple[str, int, Images, str], seed: int) -> list[Prediction]:
    name, shard_size, images, _ = system
    hardware = load_hardware(name, costs)
    most = predict(costs, hardware, SIZES[-1], shard_size, images, seed)

    def predicted(prompts: int) -> Prediction:
        steady = is_steady(hardware, prompts, shard_size)
        known = most.efficiency if steady else None
        return predict(costs, hardware, prompts, shard_size, images, seed, efficiency=known)

    return [*map(predicted, SIZES[:-1]), most]


def _limits(axes: Any, prediction: Prediction, title: str) -> None:
    """How much of each limit 10 M prompts use; beyond 100 % it is broken."""
    limits = [limit for limit in prediction.limits if 0 < limit.prompts < math.inf]
    shares = [100 * prediction.prompts / limit.prompts for limit in limits]
    names = [limit.name.replace("Dagster's ", "") for limit in limits]
    colours = ["tab:red" if share > 100 else "tab:green" for share in shares]
    axes.barh(names, shares, color=colours)
    axes.invert_yaxis()
    axes.axvline(100, color="black", linewidth=1)
    axes.set(xscale="log", xlabel="% of the limit")
    axes.set_title(f"10 M prompts:\n{title}", fontsize=9)
    axes.tick_params(axis="y", labelsize=7)
