"""Closed form: what every resource has to do for a prompt, and so the least time that it takes.

A stage's time is that of the resource which it keeps busy for longest. These are bounds: queues,
and the slowest prompt of every shard, cost more (`simulation.py` says how much).
"""

from collections import defaultdict
from typing import NamedTuple

from .inputs import CallCosts, Costs, Hardware, Role
from .simulation import seconds_between, slowdown, start_seconds, storage_seconds

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
