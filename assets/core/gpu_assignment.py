"""Which GPUs servers and trainings of a profile take, and what contradicts itself.

What calls go to at the same time has to be there at the same time: the servers of the loop's
roles; those of trained agents with generator, scorer and judge; generator and scorer during GRPO.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from schemas import FoundryError
from schemas.trajectories import LOOP_ROLES
from training.sft.recipe import read_recipe

if TYPE_CHECKING:
    from inference.servers.settings import Server
    from training.settings import TrainingSettings

    from .profile import Profile

Training = Literal["sft", "rl"]
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class GpuClaim:
    """GPUs that a training takes, and the share of their memory."""

    gpus: tuple[int, ...] = ()
    memory: float = 1.0


def training_claim(profile: "Profile", kind: Training, count: int, machine: int) -> GpuClaim:
    """The GPUs of a training with `count` of them: those of `training.devices`, else the first ones
    of the machine's that no server needed by its rewards takes.

    Raises:
        FoundryError: there are fewer.
    """
    training = profile.training
    if training is None or training.launcher.kind == "ray" or not count:
        return GpuClaim()
    beside = _memory(_reward_servers(profile)) if kind == "rl" else {}
    given = getattr(training.devices, kind)
    free = [gpu for gpu in range(machine) if gpu not in beside]
    gpus = tuple(free[:count] if given is None else given)
    if len(gpus) < count or max(gpus) >= machine:
        servers = f" beside servers on {sorted(beside)}" if beside else ""
        raise FoundryError(
            f"{kind} is to be trained on {count} GPUs{servers}, and this machine has {machine}: "
            "lower `gpus` of the training, or name GPUs in `training.devices` and `servers`"
        )
    return GpuClaim(gpus, 1 - max(beside.get(gpu, 0.0) for gpu in gpus))


def contradictions(profile: "Profile") -> Iterator[str]:
    """What cannot be, whatever the machine: `key: what is wrong and what to do`."""
    training = profile.training
    if profile.servers and _is_distributed(profile):
        yield (
            "servers: they are started on one machine, and runs or trainings are jobs of a Ray "
            "cluster: start servers by hand and name URLs under `endpoints` (docs/gpus.md)"
        )
    for why, servers in _together(profile):
        yield from _overlaps(why, servers)
    if training:
        yield from _training_contradictions(profile, training)


def server_problem(server: "Server", machine: int) -> str | None:
    """What to change where a machine has too few GPUs for a server; None: it has enough."""
    if lacking := [gpu for gpu in server.gpus if gpu >= machine]:
        return (
            f"this machine has {machine} GPUs, and no GPU {lacking[0]}: change its `gpus`, or add "
            "this machine's layout to `on_gpus`"
        )
    return None


def training_problem(profile: "Profile", machine: int) -> str | None:
    """What to change where a machine has too few GPUs for the trainings; None: it has enough."""
    try:
        for kind, _, count in _counts(profile):
            training_claim(profile, kind, count, machine)
    except FoundryError as error:
        return str(error)
    return None


def _training_contradictions(profile: "Profile", training: "TrainingSettings") -> Iterator[str]:
    for kind, name, count in _counts(profile):
        devices = getattr(training.devices, kind)
        if devices is not None and len(devices) != count:
            yield (
                f"training.devices.{kind}: {len(devices)} GPUs, but training.{name}.gpus is "
                f"{count}: make them equal"
            )
    for name, server in _reward_servers(profile).items():
        shared = set(server.gpus) & set(training.devices.rl or ())
        if shared and server.memory > 1 - _TOLERANCE:
            yield (
                f"training.devices.rl: GRPO needs server {name}, which takes all of GPU "
                f"{min(shared)}: choose other GPUs, or lower `servers.{name}.memory`"
            )


def _counts(profile: "Profile") -> Iterator[tuple[Training, str, int]]:
    """Trainer, training and its number of GPUs."""
    if training := profile.training:
        yield "sft", "planner_sft", read_recipe(training.planner_sft).gpus
        yield "sft", "critic_sft", read_recipe(training.critic_sft).gpus
        rl = training.critic_rl
        yield "rl", "critic_rl", 0 if rl.on_cluster else rl.gpus


def _overlaps(why: str, servers: Mapping[str, "Server"]) -> Iterator[str]:
    for gpu, memory in sorted(_memory(servers).items()):
        if memory > 1 + _TOLERANCE:
            names = " and ".join(name for name, server in servers.items() if gpu in server.gpus)
            yield (
                f"servers: {names} are needed at the same time ({why}) and take {memory:.0%} of "
                f"GPU {gpu}: give them other `gpus`, or a smaller `memory`"
            )


def _together(profile: "Profile") -> Iterator[tuple[str, dict[str, "Server"]]]:
    """Why, and servers that have to run at the same time."""
    loop = {name for role in LOOP_ROLES for name in profile.servers_of(role)}
    yield "by the loop", _named(profile, loop)
    trained = {profile.trained_server("planner"), profile.trained_server("critic")}
    if trained != {None}:
        names = {name for name in trained if name} | set(_reward_servers(profile))
        if judge := profile.evaluation.judge:
            for model in (judge.model, judge.rubrics):
                names |= set(profile.servers_named(judge.backend, model))
        yield "by evaluation and service", _named(profile, names)


def _reward_servers(profile: "Profile") -> dict[str, "Server"]:
    return _named(profile, profile.servers_of("generator") | profile.servers_of("scorer"))


def _named(profile: "Profile", names: set[str]) -> dict[str, "Server"]:
    return {name: server for name, server in profile.servers.items() if name in names}


def _memory(servers: Mapping[str, "Server"]) -> dict[int, float]:
    """GPU -> the share of its memory that servers take together."""
    memory: defaultdict[int, float] = defaultdict(float)
    for server in servers.values():
        for gpu in server.gpus:
            memory[gpu] += server.memory
    return dict(memory)


def _is_distributed(profile: "Profile") -> bool:
    trains = profile.training is not None and profile.training.launcher.kind == "ray"
    return trains or (profile.cluster is not None and profile.cluster.ray is not None)
