"""The launcher's settings, what goes to a trainer's driver, and what comes back."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveFloat, model_validator

from schemas.yaml_config import ConfigModel
from warehouse.atomic import atomic_write

from ..tracking import TrackingSettings

AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]


class LauncherSettings(ConfigModel):
    """Trainers on this machine, or as jobs of a Ray cluster that shares its file system."""

    kind: Literal["local", "ray"] = Field("local", description="Local process or Ray job")
    address: str | None = Field(None, description="Ray's job server, such as http://head:8265")
    detached: bool = Field(
        False,
        description="A local training goes on when the process that started it is killed, and is "
        "followed when it is started again; a Ray job always is. Otherwise it ends with that "
        "process, and resumes from its newest checkpoint",
    )
    grace_seconds: PositiveFloat = Field(
        10.0, le=14.0, description="Between TERM and KILL when a run is terminated"
    )

    @model_validator(mode="after")
    def _has_an_address(self) -> "LauncherSettings":
        if self.kind == "ray" and not self.address:
            raise ValueError("kind ray needs an address, such as http://head:8265")
        return self


class TrainerJob(ConfigModel):
    """One training: `python -m module folder/job.json`, run inside its folder, is its driver."""

    name: str = Field(description="What is trained, for logs")
    module: str = Field(description="Module of the driver")
    folder: Path = Field(description="Absolute folder of the job: configuration, logs, checkpoints")
    payload: dict[str, Any] = Field(description="What the driver needs to know, as JSON")
    gpus: int = Field(0, ge=0, description="GPUs to reserve where a cluster schedules them")
    devices: tuple[int, ...] = Field(
        (), description="GPUs of this machine that its driver claims before it trains"
    )
    memory: float = Field(1.0, gt=0, le=1, description="Share of their memory")
    gpus_used: int = Field(0, ge=0, description="GPUs that it keeps busy, of all nodes")
    tracking: TrackingSettings = Field(TrackingSettings(), description="Where its curves go")
    environment: dict[str, str] = Field(
        default_factory=dict,
        description="Variables for the driver; never written to a file, so secrets may be here",
    )

    def write(self) -> Path:
        """Write `job.json` (without the environment) to the folder, which is created."""
        path = self.folder / "job.json"
        atomic_write(path, self.model_dump_json(indent=2, exclude={"environment"}))
        return path


class TrainingProgress(ConfigModel):
    """Progress of a training; also a point of its curves."""

    step: int = Field(description="Optimizer steps done, of the whole training")
    total: int = Field(description="Optimizer steps of the whole training")
    loss: float | None = Field(None, description="Training loss")
    reward: float | None = Field(None, description="Mean reward of the step's rollouts")
    learning_rate: float | None = Field(None, description="Learning rate")
    samples_per_second: float | None = Field(None, description="Throughput")
    seconds_left: float | None = Field(None, description="Estimated time left")
    extra: dict[str, float] = Field(default_factory=dict, description="Other figures, by name")

    def note(self) -> str:
        """Its figures as one short line, such as `loss 0.312, 14.2 samples/s, 80 s left`."""
        parts = {
            "loss {:.4g}": self.loss,
            "reward {:.3f}": self.reward,
            "{:.3g} samples/s": self.samples_per_second,
            "{:.0f} s left": self.seconds_left,
        }
        return ", ".join(text.format(value) for text, value in parts.items() if value is not None)


class TrainingFinished(ConfigModel):
    """The last message of a training that succeeded."""

    model: Path = Field(description="Folder in Hugging Face format")
    metrics: dict[str, float] = Field(description="Final figures")


class TrainingFailure(ConfigModel):
    """The last message of a training that failed."""

    reason: str = Field(description="What went wrong and what to do, in one line")
    log: Path | None = Field(None, description="The log that says more")


class Message(ConfigModel):
    """What a driver reports through Dagster Pipes."""

    kind: Literal["progress", "finished", "failed"] = Field(description="Which one is filled")
    progress: TrainingProgress | None = Field(None, description="A step was done")
    finished: TrainingFinished | None = Field(None, description="The model is there")
    failed: TrainingFailure | None = Field(None, description="There will be no model")


class TrainingOutcome(TrainingFinished):
    """What a finished training leaves."""

    curves: list[TrainingProgress] = Field(description="Progress by step, each step once")
