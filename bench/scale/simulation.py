"""Discrete events: shards through plans, trajectories and scores, call by call (simpy).

A run works on one shard after the other. In a stage, `in_flight` prompts of the shard are worked on
at once; a call takes CPU of its run, a slot of its role in the run, a slot of the model's server,
and time. Stages of a shard follow each other, so that the slowest prompt of each holds up the next.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import simpy

from .inputs import CallCosts, Costs, Hardware, ModelServer, Role

Events = Generator[simpy.Event, Any, None]
# Calls that are made at once; a prompt's work in a stage is a sequence of them.
Calls = tuple[Role, ...]

_BACKOFF_SECONDS = 1.0


class Station:
    """A queue, first come, first served, by `slots` at once (None: as many as come).

    `pace` seconds are between the starts of two pieces of work: a limit of requests or tokens.
    """

    def __init__(self, env: simpy.Environment, slots: int | None = None) -> None:
        self._env = env
        self._slots = simpy.Resource(env, slots) if slots else None
        self._opens_at = 0.0
        self.busy = 0.0

    def serve(self, seconds: float, pace: float = 0.0) -> Events:
        if pace:
            start = max(self._env.now, self._opens_at)
            self._opens_at = start + pace
            yield self._env.timeout(start - self._env.now)
        if self._slots is None:
            yield from self._work(seconds)
            return
        with self._slots.request() as turn:
            yield turn
            yield from self._work(seconds)

    def _work(self, seconds: float) -> Events:
        self.busy += seconds
        yield self._env.timeout(seconds)


@dataclass
class Simulated:
    """What a simulation has seen."""

    seconds: float = 0.0  # from the first run's start to the last one's end
    prompts: int = 0
    calls: Counter[str] = field(default_factory=Counter)  # by role, tries that failed included
    shard_seconds: list[float] = field(default_factory=list)


@dataclass
class _Run:
    """Resources of one run at a time."""

    cpu: Station
    slots: dict[Role, simpy.Resource]


class Factory:
    """`shards` (prompts in each) on some hardware; the same seed gives the same result.

    Args:
        stagger: seconds between the starts of two runs.
    """

    def __init__(
        self,
        costs: Costs,
        hardware: Hardware,
        shards: Sequence[int],
        seed: int = 0,
        stagger: float = 0.0,
    ) -> None:
        self._stagger = stagger
        self._costs, self._hardware = costs, hardware
        self._queue = iter(shards)
        self._random = Random(seed)
        self._env = simpy.Environment()
        self._servers = {
            model: Station(self._env, server.slots) for model, server in hardware.servers.items()
        }
        self.seen = Simulated()

    def run(self) -> Simulated:
        for number in range(self._hardware.runs):
            self._env.process(self._work_on_shards(number * self._stagger))
        self._env.run()
        self.seen.seconds = self._env.now
        return self.seen

    def _work_on_shards(self, start: float) -> Events:
        yield self._env.timeout(start)
        run, engine = self._new_run(), self._costs.engine
        for number, prompts in enumerate(self._queue):
            started = self._env.now
            if number % self._hardware.shards_per_run == 0:
                yield self._env.timeout(start_seconds(self._costs, self._hardware))
            yield from run.cpu.serve(self._cpu(engine.run_cpu_seconds.value))
            yield from self._shard(run, prompts)
            self.seen.shard_seconds.append(self._env.now - started)

    def _new_run(self) -> _Run:
        hardware = self._hardware
        agents = simpy.Resource(self._env, hardware.agent_slots)
        slots: dict[Role, simpy.Resource] = dict.fromkeys(hardware.roles, agents)
        slots["generator"] = simpy.Resource(self._env, hardware.generator_slots)
        return _Run(Station(self._env, hardware.cores_per_run), slots)

    def _shard(self, run: _Run, prompts: int) -> Events:
        attempts = [self._attempts() for _ in range(prompts)]
        scores: Calls = tuple(self._repeated("scorer"))
        stages: tuple[list[list[Calls]], ...] = (
            [[(role,) for role in self._repeated("planner")]] * prompts,
            [self._loop(count) for count in attempts],
            [[scores] * count for count in sorted(attempts, reverse=True)],
        )
        for stage in stages:
            queue = iter(stage)
            workers = range(min(self._hardware.in_flight, prompts))
            yield self._env.all_of(
                [self._env.process(self._work_on_prompts(run, queue)) for _ in workers]
            )
        self.seen.prompts += prompts

    def _loop(self, attempts: int) -> list[Calls]:
        roles = (*self._repeated("generator"), *self._repeated("critic"))
        return [(role,) for role in roles] * attempts

    def _repeated(self, role: Role) -> list[Role]:
        """The role as often as it is called per prompt or attempt."""
        return [role] * round(self._call(role).calls)

    def _call(self, role: Role) -> CallCosts:
        return self._costs.models[self._hardware.roles[role]].roles[role]

    def _work_on_prompts(self, run: _Run, queue: Iterator[list[Calls]]) -> Events:
        for work in queue:
            for calls in work:
                if len(calls) == 1:
                    yield from self._make(run, calls[0])
                else:
                    made = [self._env.process(self._make(run, role)) for role in calls]
                    yield self._env.all_of(made)

    def _make(self, run: _Run, role: Role) -> Events:
        model = self._hardware.roles[role]
        call, server = self._call(role), self._hardware.servers.get(model)
        yield from run.cpu.serve(self._cpu(call.cpu_seconds.value))
        self.seen.calls[role] += 1
        if server is not None:
            while True:
                with run.slots[role].request() as slot:
                    yield slot
                    seconds = self._sample(call.seconds.value, call.spread)
                    pace = seconds_between(server, call.tokens)
                    yield from self._servers[model].serve(seconds, pace)
                if self._random.random() >= server.errors:
                    break
                self.seen.calls[role] += 1
                yield self._env.timeout(_BACKOFF_SECONDS)
        if self._hardware.storage == "s3":
            yield self._env.timeout(storage_seconds(self._costs, role))

    def _cpu(self, seconds: float) -> float:
        return seconds * slowdown(self._hardware)

    def _attempts(self) -> int:
        """At least one; a fraction is rounded up as often as it says."""
        workload = self._costs.workloads[self._hardware.workload]
        mean = self._sample(workload.attempts.value, workload.attempts_spread)
        return max(1, int(mean + self._random.random()))

    def _sample(self, mean: float, spread: float) -> float:
        if not spread or not mean:
            return mean
        shape = 1 / spread**2
        return self._random.gammavariate(shape, mean / shape)


def seconds_between(server: ModelServer, tokens: float) -> float:
    """Seconds between two requests of so many tokens that a server's limits allow."""
    requests = 60 / server.requests_per_minute if server.requests_per_minute else 0.0
    volume = 60 * tokens / server.tokens_per_minute if server.tokens_per_minute else 0.0
    return max(requests, volume)


def start_seconds(costs: Costs, hardware: Hardware) -> float:
    """Before the first call of a run."""
    return costs.engine.run_seconds.value if hardware.ray_jobs else 0.0


def slowdown(hardware: Hardware) -> float:
    """How much longer CPU work takes because runs have more threads than there are cores."""
    return max(1.0, hardware.runs * hardware.cores_per_run / (hardware.machines * hardware.cores))


def storage_seconds(costs: Costs, role: Role) -> float:
    """Waiting for the object store in a call: its journal lines, and an image's HEAD and PUT."""
    storage = costs.storage
    requests = storage.appends.value + (2 if role == "generator" else 0)
    return requests * storage.put_seconds.value
