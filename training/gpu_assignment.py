"""Which GPUs servers and trainings of a profile take, and what contradicts itself.

What calls go to at the same time has to be there at the same time: the servers of the loop's
roles; those of trained agents with generator, scorer and judge; generator and scorer during GRPO.
On a Ray cluster, Ray chooses the GPUs: there only numbers count.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from inference.backends.factory import Backends
from inference.servers.settings import CommandServer, Server
from schemas import FoundryError
from schemas.trajectories import LOOP_ROLES

from .settings import TrainingSettings
from .sft.recipe import read_recipe

Training = Literal["sft", "rl"]
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class GpuClaim:
    """GPUs that a training takes, and the share of their memory."""

    gpus: tuple[int, ...] = ()
    memory: float = 1.0


@dataclass(frozen=True)
class GpuAssignment:
    """What takes GPUs.

    Args:
        judges: names of the servers that a judge of evaluations needs.
        ray: job server of the Ray cluster of runs and servers; None: they are on this machine.
    """

    backends: Backends
    training: TrainingSettings | None
    judges: frozenset[str] = frozenset()
    ray: str | None = None

    def claim(self, kind: Training, count: int, machine: int) -> GpuClaim:
        """The GPUs of a training with `count` of them: those of `training.devices`, else the first
        ones of the machine's that no server needed by its rewards takes.

        Raises:
            FoundryError: there are fewer.
        """
        if self.training is None or self.training.launcher.kind == "ray" or not count:
            return GpuClaim()
        beside = self._memory(self._rewarding) if kind == "rl" else {}
        given = getattr(self.training.devices, kind)
        free = [gpu for gpu in range(machine) if gpu not in beside]
        gpus = tuple(free[:count] if given is None else given)
        if len(gpus) < count or max(gpus) >= machine:
            servers = f" beside servers on {sorted(beside)}" if beside else ""
            raise FoundryError(
                f"{kind} is to be trained on {count} GPUs{servers}, and this machine has "
                f"{machine}: lower `gpus` of the training, or change `training.devices` and "
                "`servers`"
            )
        return GpuClaim(gpus, 1 - max(beside.get(gpu, 0.0) for gpu in gpus))

    def needed_gpus(self) -> float:
        """The most that a cluster needs at the same time: for servers, or for a training and the
        servers of its rewards."""
        servers = [sum(map(self._reserved, names)) for _, names in self._together()]
        rewarding = sum(map(self._reserved, self._rewarding))
        trainings = [count + rewarding * (kind == "rl") for kind, _, count in self.trainings()]
        reinforcements = self.training.reinforcements.values() if self.training else ()
        trainings += [rl.gpus * rl.nodes + rewarding for rl in reinforcements if rl.on_cluster]
        return max([*servers, *trainings])

    def _reserved(self, server: str) -> float:
        return self.backends.servers[server].reserved_gpus

    def trainings(self) -> Iterator[tuple[Training, str, int]]:
        """Trainer, section and number of GPUs, of what a Ray cluster does not place."""
        if self.training:
            yield "sft", "planner_sft", read_recipe(self.training.planner_sft).gpus
            yield "sft", "critic_sft", read_recipe(self.training.critic_sft).gpus
            for name, rl in self.training.reinforcements.items():
                yield "rl", name, 0 if rl.on_cluster else rl.gpus

    def training_problem(self, machine: int) -> str | None:
        """What to change where a machine has too few GPUs for the trainings; None: it has enough.

        Trainings of a Ray cluster find theirs there.
        """
        try:
            for kind, _, count in self.trainings():
                self.claim(kind, count, machine)
        except FoundryError as error:
            return str(error)
        return None

    def contradictions(self) -> Iterator[str]:
        """What cannot be, whatever the machine: `key: what is wrong and what to do`."""
        if self.ray and self.backends.servers:
            yield from self._ray_contradictions()
            return
        if self.backends.servers and self.training and self.training.launcher.kind == "ray":
            yield (
                "servers: trainings are jobs of a Ray cluster, which does not know what servers of "
                "this machine take: name the cluster under `cluster.ray` as well, and it serves"
            )
        yield from self._overlaps()
        yield from self._training_contradictions()

    def _ray_contradictions(self) -> Iterator[str]:
        for name, server in self.backends.servers.items():
            if isinstance(server, CommandServer) and not any("{host}" in p for p in server.command):
                yield (
                    f"servers.{name}.command: other nodes of the Ray cluster call it: have it "
                    "listen on {host}"
                )
            if server.memory < 1 and len(server.gpus) > 1:
                yield (
                    f"servers.{name}.memory: Ray shares single GPUs only, and it takes "
                    f"{len(server.gpus)}: set it to 1"
                )
        launcher = self.training.launcher if self.training else None
        trains = any(count for _, _, count in self.trainings())
        if launcher and trains and (launcher.kind, launcher.address) != ("ray", self.ray):
            yield (
                "training.launcher: servers are on a Ray cluster, which is to reserve the GPUs of "
                f"trainings as well: set it to {{kind: ray, address: {self.ray}}}"
            )

    def _overlaps(self) -> Iterator[str]:
        servers = self.backends.servers
        for why, together in self._together():
            for gpu, memory in sorted(self._memory(together).items()):
                if memory > 1 + _TOLERANCE:
                    names = " and ".join(sorted(n for n in together if gpu in servers[n].gpus))
                    yield (
                        f"servers: {names} are needed at the same time ({why}) and take "
                        f"{memory:.0%} of GPU {gpu}: give them other `gpus`, or a smaller `memory`"
                    )

    def _training_contradictions(self) -> Iterator[str]:
        for kind, name, count in self.trainings():
            if (devices := self._devices(kind)) and len(devices) != count:
                yield (
                    f"training.devices.{kind}: {len(devices)} GPUs, but training.{name}.gpus is "
                    f"{count}: make them equal"
                )
        memory = self._memory(self._rewarding)
        for gpu in self._devices("rl"):
            if memory.get(gpu, 0.0) > 1 - _TOLERANCE:
                names = " and ".join(sorted(self._rewarding))
                yield (
                    f"training.devices.rl: rewards need {names}, which take all of GPU {gpu}: "
                    "choose other GPUs, or lower the `memory` of the servers"
                )

    def _together(self) -> Iterator[tuple[str, set[str]]]:
        """Why, and the names of servers that have to run at the same time."""
        loop = {name for role in LOOP_ROLES for name in self.backends.servers_of(role)}
        yield "by the loop", loop
        if self._rewarding - loop:
            yield "by rewards", self._rewarding
        trained = [self.backends.trained_server(role) for role in ("planner", "critic")]
        if names := set(filter(None, trained)):
            untrained = self.backends.servers_of("generator") | self.backends.servers_of("scorer")
            yield "by evaluation and service", names | untrained | self.judges

    @property
    def _rewarding(self) -> set[str]:
        """Servers of generators and scorer during GRPO, of the judge that grades plans and
        trajectories, and of the critic where the loop plays them."""
        named = self.training.critic_rl.reward.generators if self.training else ()
        drawing = self.backends.servers_of("generator", named)
        reinforced = self.training.reinforcements.values() if self.training else ()
        rewards = [settings.reward for settings in reinforced]
        judging = self.judges if any(each.of != "step" for each in rewards) else frozenset()
        asked = any(each.asks_critic for each in rewards)
        playing = self.backends.servers_of("critic") if asked else set()
        return drawing | self.backends.servers_of("scorer") | judging | playing

    def _memory(self, names: set[str]) -> dict[int, float]:
        """GPU -> the share of its memory that servers take together."""
        memory: defaultdict[int, float] = defaultdict(float)
        for name in names:
            server: Server = self.backends.servers[name]
            for gpu in server.gpus:
                memory[gpu] += server.memory
        return dict(memory)

    def _devices(self, kind: Training) -> tuple[int, ...]:
        return (self.training and getattr(self.training.devices, kind)) or ()


def server_problem(server: Server, machine: int, gpu_bytes: int = 0) -> str | None:
    """What to change where a machine's GPUs do not suffice for a server; None: they do.

    Args:
        gpu_bytes: memory of a GPU; 0: unknown.
    """
    if lacking := [gpu for gpu in server.gpus if gpu >= machine]:
        return (
            f"this machine has {machine} GPUs, and no GPU {lacking[0]}: change its `gpus`, or add "
            "this machine's layout to `on_gpus`"
        )
    weights, share = server.weights_per_gpu or 0, server.memory * gpu_bytes
    if server.gpus and gpu_bytes and weights > share:
        return (
            f"its weights take {weights / 1e9:.1f} GB of a GPU, and its share is "
            f"{share / 1e9:.1f} GB: raise its `memory`, or spread it over more `gpus`"
        )
    return None
