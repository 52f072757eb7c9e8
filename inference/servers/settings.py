"""Section `servers` of a profile: models that are served here, and the GPUs that each takes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from schemas import FoundryError
from schemas.yaml_config import ConfigModel

from ..backends.checkpoint.manifest import AgentRole
from ..backends.diffusers.backend import DiffusersSettings, select_model
from ..backends.model_files import weights_bytes

Gpu = Annotated[int, Field(ge=0)]


class _Server(ConfigModel):
    gpus: tuple[Gpu, ...] = Field(
        description="GPUs that it takes, counted from 0 among those that this machine shows, or "
        "their number; []: it runs on the CPU. On a Ray cluster only their number counts"
    )
    memory: float = Field(
        1.0, gt=0, le=1, description="Share of their memory; the rest is for another server"
    )
    ray: str | None = Field(
        None,
        description="Job server of the Ray cluster whose GPUs it takes, on one of its nodes; set "
        "by `cluster.ray`. null: this machine",
    )
    gpu_hour_usd: float | None = Field(
        None,
        ge=0,
        description="Price of an hour of one of its GPUs; null: `training.gpu_hour_usd`, if any",
    )
    port: int = Field(0, ge=0, le=65535, description="Port that it listens on; 0: any free one")
    start_seconds: float = Field(
        3600, gt=0, description="It fails unless it is ready after so long, downloads included"
    )
    idle_seconds: float = Field(
        900,
        ge=0,
        description="It is stopped when it has not been used for so long; half a minute after the "
        "last process that used it has ended",
    )

    @property
    def reserved_gpus(self) -> float:
        """How much of GPUs a Ray cluster reserves for it."""
        return len(self.gpus) * self.memory

    @field_validator("gpus", mode="before", json_schema_input_type=int | tuple[Gpu, ...])
    @classmethod
    def _first_gpus(cls, gpus: Any) -> Any:
        is_number = isinstance(gpus, int) and not isinstance(gpus, bool) and gpus >= 0
        return tuple(range(gpus)) if is_number else gpus

    @field_validator("gpus")
    @classmethod
    def _each_gpu_once(cls, gpus: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(gpus)) < len(gpus):
            raise ValueError(f"{list(gpus)} names a GPU twice: name each once")
        return gpus


class AgentServer(_Server):
    """A planner, critic or scorer on vLLM, which is installed on first use."""

    kind: Literal["agents"]
    model: str | None = Field(
        None, description="Id at Hugging Face, a folder, or the name of a checkpoint of the home"
    )
    revision: str | None = Field(None, description="Of an id; null: the newest")
    trained: AgentRole | None = Field(
        None,
        description="Instead of a model: it serves the trained agent of this role that an "
        "evaluation or the service needs, one at a time",
    )
    tensor_parallel: int | None = Field(
        None,
        ge=1,
        description="GPUs that share one copy of the model; there are as many copies as fit. "
        "null: one copy on all GPUs",
    )
    max_length: int | None = Field(
        None, ge=1, description="Tokens of a question and its answer; null: 32768, or what it can"
    )
    flags: tuple[str, ...] = Field((), description="More flags of `vllm serve`; they win over ours")

    @property
    def title(self) -> str:
        return self.model or f"the trained {self.trained}"

    @property
    def weights_per_gpu(self) -> float | None:
        """Bytes of weights on each of its GPUs; None: they are not here yet."""
        size = weights_bytes(self.model, self.revision) if self.model else None
        return size and size / (self.tensor_parallel or max(1, len(self.gpus)))

    @property
    def concurrency(self) -> int:
        """Requests that are answered at the same time."""
        return 128 if self.gpus else 16

    @model_validator(mode="after")
    def _check(self) -> "AgentServer":
        if (self.model is None) == (self.trained is None):
            raise ValueError("name either a `model`, or with `trained` a role: planner or critic")
        if self.tensor_parallel and len(self.gpus) % self.tensor_parallel:
            fitting = [n for n in range(1, len(self.gpus) + 1) if not len(self.gpus) % n]
            raise ValueError(
                f"tensor_parallel {self.tensor_parallel} does not divide its {len(self.gpus)} GPUs:"
                f" set it to one of {', '.join(map(str, fitting))}"
            )
        if self.tensor_parallel and not self.gpus:
            raise ValueError("tensor_parallel is for GPUs: name some in gpus, or leave it out")
        return self


class ImageServer(_Server):
    """A generator behind our images server, with a replica on each GPU, or one on the CPU."""

    kind: Literal["images"]
    model: str = Field(description="Name, as `interleave generator list` shows it, or `sketch`")
    registry: Path | None = Field(None, description="YAML file with more models")
    batch: int = Field(4, ge=1, description="Images that a replica generates at once, at most")
    queue: int = Field(64, ge=0, description="Images that may wait until replicas are free")
    offload: bool = Field(
        False,
        description="Parts of the model wait in main memory until they compute: a GPU holds the "
        "largest one only, and a batch takes some seconds more",
    )

    @property
    def title(self) -> str:
        return self.model

    @property
    def weights_per_gpu(self) -> float | None:
        """Bytes of weights on each of its GPUs at a time; None: they are not here yet."""
        if self.pipeline is None:
            return None
        try:
            model = select_model(self.pipeline).model
        except FoundryError:  # no such model
            return None
        return weights_bytes(model.model, model.revision, largest_part=self.offload)

    @property
    def pipeline(self) -> DiffusersSettings | None:
        """The pipeline that it serves; None: the sketch world's generator."""
        if self.model == "sketch":
            return None
        device = "auto" if self.gpus else "cpu"
        chosen = {"registry": self.registry, "device": device, "offload": self.offload}
        return DiffusersSettings(model=self.model, **chosen)


class CommandServer(_Server):
    """Any other server with OpenAI's API, such as SGLang or vLLM-Omni."""

    kind: Literal["command"]
    model: str = Field(description="Its name for the model")
    command: tuple[str, ...] = Field(
        min_length=1,
        description="Program and arguments, in which {host} and {port}, where it is to listen, are "
        "replaced; a key that it may require is in INTERLEAVE_SERVER_KEY",
    )
    health: str = Field("/health", description="Path that answers 200 once it is ready")
    weights_per_gpu: ClassVar[float | None] = None  # unknown

    @property
    def title(self) -> str:
        return self.model


Server = Annotated[AgentServer | ImageServer | CommandServer, Field(discriminator="kind")]


def misfit(server: Server, backend: str, kinds: Sequence[str], model: str) -> str | None:
    """Why a server cannot serve a backend's model, and what to change; None: it can.

    `kinds`: of servers that can.
    """
    if server.kind not in kinds:
        wanted = " or ".join(kinds) or "none: give it a URL or a key"
        return f"is of kind {server.kind}, and backend {backend} needs {wanted}"
    if server.model is None:
        return "serves trained agents: name one that has a `model`"
    # The name of a folder or checkpoint is only known once it is there.
    is_fixed = server.kind != "agents" or ("/" in server.model and not Path(server.model).is_dir())
    if is_fixed and server.model != model:
        return f"serves {server.model}, not {model}: name the same model in both"
    return None


_LEDGER_BACKENDS = {"agents": "openai", "images": "images"}  # a command may be a server of either


class ServerSpec(ConfigModel):
    """What the supervisor of a server needs to know."""

    name: str = Field(description="Its name in the profile")
    model: str = Field(description="What it serves; of a trained agent the checkpoint's folder")
    root: str = Field(description="Folder or URL of the home")
    settings: Server = Field(description="The profile's")
    served_as: str | None = Field(
        None, description="The server's name for a trained agent; null: the model's own"
    )

    @property
    def ledger_name(self) -> str:
        """Backend and model of its calls, as the ledger names them; of a command the model."""
        if self.served_as:
            return f"checkpoint/{self.served_as}"
        backend = _LEDGER_BACKENDS.get(self.settings.kind)
        return f"{backend}/{self.model}" if backend else self.model


class ServerState(ConfigModel):
    """What a server does, as its supervisor last wrote it."""

    state: Literal["waiting", "starting", "ready", "stopping", "failed"] = Field(
        description="waiting: for its GPUs"
    )
    since: float = Field(description="Unix time of the change to this state")
    pid: int = Field(description="Process of its supervisor")
    url: str | None = Field(None, description="Base URL; null before it is ready")
    note: str = Field("", description="What it waits for, or why it failed")
