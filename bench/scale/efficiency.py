"""The least time of every resource, in closed form, and how busy the busiest one is kept.

A stage's time is that of the resource which it keeps busy for longest. These are bounds: queues,
and the slowest prompt of every shard, cost more, as a simulation of some shards shows. A system
with too many calls to simulate is scaled down to one of the same proportions.
"""

import math
from collections import defaultdict
from typing import NamedTuple

from .inputs import CallCosts, Costs, Hardware, ModelServer, Role
from .simulation import Factory, seconds_between, slowdown, start_seconds, storage_seconds

MONTH_SECONDS = 30 * 24 * 3600.0
Stage = str  # plans, draws, verdicts, scores, runs
STAGES: dict[Stage, Role] = {
    "plans": "planner",
    "draws": "generator",
    "verdicts": "critic",
    "scores": "scorer",
}


_CPU, _CAP = "CPU of the runs", "monthly spending cap"


class Use(NamedTuple):
    """Seconds of a resource per prompt, divided by how many of it there are."""

    stage: Stage
    resource: str
    seconds: float

    @property
    def is_cap(self) -> bool:
        """Whether it is a limit of spending."""
        return self.resource.startswith(_CAP)


def calls_per_prompt(costs: Costs, hardware: Hardware, role: Role) -> float:
    calls = call_costs(costs, hardware, role).calls
    return calls * (1.0 if role == "planner" else costs.workloads[hardware.workload].attempts.value)


def call_costs(costs: Costs, hardware: Hardware, role: Role) -> CallCosts:
    return costs.models[hardware.roles[role]].roles[role]


def tries(hardware: Hardware, role: Role) -> float:
    """Requests per answer."""
    server = hardware.servers.get(hardware.roles[role])
    return 1 / (1 - server.errors) if server else 1.0


def uses(costs: Costs, hardware: Hardware, shard_size: int) -> list[Use]:
    """What a prompt needs of every resource."""
    found = [use for stage in STAGES for use in _stage_uses(costs, hardware, stage, shard_size)]
    engine = costs.engine
    cpu = engine.run_cpu_seconds.value * slowdown(hardware) / shard_size / hardware.runs
    wait = start_seconds(costs, hardware) / (shard_size * hardware.shards_per_run) / hardware.runs
    found.append(Use("runs", _CPU, cpu / hardware.cores_per_run))
    found.append(Use("runs", "start of runs", wait + cpu))
    return found


def _stage_uses(costs: Costs, hardware: Hardware, stage: Stage, shard_size: int) -> list[Use]:
    role = STAGES[stage]
    call, model = call_costs(costs, hardware, role), hardware.roles[role]
    answers = calls_per_prompt(costs, hardware, role)
    requests = answers * tries(hardware, role)
    cpu = call.cpu_seconds.value * slowdown(hardware)
    found = [Use(stage, _CPU, answers * cpu / (hardware.runs * hardware.cores_per_run))]
    server, waiting = hardware.servers.get(model), 0.0
    if server is not None:
        waiting = call.seconds.value
        slots = hardware.generator_slots if role == "generator" else hardware.agent_slots
        found.append(Use(stage, "slots of the runs", requests * waiting / slots / hardware.runs))
        if server.slots:
            kind = "GPUs" if server.gpus else "concurrent calls"
            found.append(Use(stage, f"{kind} of {model}", requests * waiting / server.slots))
        if pace := seconds_between(server, call.tokens):
            found.append(Use(stage, f"rate limit of {model}", requests * pace))
        if server.usd_per_month:
            usd = answers * costs.models[model].usd(role) * server.price
            month = usd / server.usd_per_month * MONTH_SECONDS
            found.append(Use(stage, f"{_CAP} of {model}", month))
    if hardware.storage == "s3":
        waiting += storage_seconds(costs, role)
    at_once = min(hardware.in_flight, shard_size) * hardware.runs
    turns = answers / call.calls if role == "scorer" else answers  # its calls are made at once
    latency = turns * (waiting * tries(hardware, role) + cpu)
    found.append(Use(stage, "prompts in flight", latency / at_once))
    return found


def stage_seconds(found: list[Use]) -> dict[Stage, tuple[float, str]]:
    """Seconds per prompt of every stage by itself, and its bottleneck."""
    slowest: dict[Stage, tuple[float, str]] = {}
    for use in found:
        slowest[use.stage] = max(slowest.get(use.stage, (0.0, "")), (use.seconds, use.resource))
    return slowest


def bound_seconds(found: list[Use]) -> tuple[float, str]:
    """Seconds per prompt of all stages, which share resources, and the bottleneck."""
    totals: dict[str, float] = defaultdict(float)
    for use in found:
        totals[use.resource] += use.seconds
    return max((seconds, resource) for resource, seconds in totals.items())


_MOST_CALLS = 60_000  # of a simulation, which takes a second for about as many
_FEWEST_RUNS, _SMALLEST_SHARD = 6, 100  # of a system that is scaled down
_WAVES = 3  # shards of every run


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


def efficiency(costs: Costs, hardware: Hardware, prompts: int, shard_size: int, seed: int) -> float:
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
