"""Where trainers send their curves besides Dagster: trackers that both trainers know.

Secrets, such as WANDB_API_KEY, come from the environment only.
"""

import re
import subprocess
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from schemas import FoundryError
from schemas.yaml_config import ConfigModel

Tracker = Literal["tensorboard", "wandb", "mlflow", "swanlab", "trackio", "none"]
_LINK = re.compile(r"[Vv]iew run\b.*?(https?://[^\s\x1b]+)")
EVENTS = "tensorboard"  # folder of TensorBoard's files, in the job's


class TrackingSettings(ConfigModel):
    """A tracker; its keys are read from the environment."""

    kind: Tracker = Field(
        "tensorboard", description="tensorboard: files in the job's folder, nothing is sent"
    )
    project: str = Field("interleave", description="Project, or experiment, at the tracker")
    url: str | None = Field(
        None, description="Server of your own; null: the tracker's public one (mlflow has none)"
    )

    @model_validator(mode="after")
    def _has_a_server(self) -> "TrackingSettings":
        if self.kind == "mlflow" and not self.url:
            raise ValueError("mlflow needs the url of a server, such as http://mlflow:5000")
        if self.url and self.kind not in _SERVERS:
            raise ValueError(f"{self.kind} has no server: leave url out")
        return self

    def variables(self, folder: Path) -> dict[str, str]:
        """Environment variables of a trainer in the job's `folder`; none is a secret.

        A resumed training goes on with its run where the tracker can.
        """
        events, run = str(folder / EVENTS), f"{folder.parent.name}-{folder.name}"
        server = {_SERVERS[self.kind]: self.url} if self.url else {}
        return (
            server
            | {
                "tensorboard": {"TENSORBOARD_LOGGING_DIR": events, "TENSORBOARD_DIR": events},
                "wandb": {
                    "WANDB_PROJECT": self.project,
                    "WANDB_DIR": str(folder),
                    "WANDB_RUN_ID": run,
                    "WANDB_RESUME": "allow",
                },
                "mlflow": {"MLFLOW_EXPERIMENT_NAME": self.project},
                "swanlab": {
                    "SWANLAB_PROJECT": self.project,
                    "SWANLAB_LOG_DIR": str(folder / "swanlab"),
                },
                "trackio": {"TRACKIO_PROJECT": self.project},
                "none": {},
            }[self.kind]
        )


OFFLINE = TrackingSettings()


def tracking_link(tracking: TrackingSettings, folder: Path) -> str | None:
    """Where the curves of a job are: a folder, or the address that the trainer's log names."""
    if tracking.kind == "tensorboard":
        return str(folder / EVENTS) if (folder / EVENTS).is_dir() else None
    logs = sorted(folder.glob("*.log"), key=lambda log: log.stat().st_mtime, reverse=True)
    links = (_LINK.findall(log.read_text("utf-8", "replace")) for log in logs)
    return next((found[-1] for found in links if found), tracking.url)


def require_tracker(tracking: TrackingSettings, python: Path) -> None:
    """Raise FoundryError unless a trainer's environment, of that interpreter, has the tracker."""
    if tracking.kind in ("tensorboard", "none"):
        return
    if not has_package(python, tracking.kind):
        raise FoundryError(
            f"training.tracking: {tracking.kind} is not in the trainer's environment: install it "
            f"there (uv pip install --python {python} {tracking.kind}), or choose tensorboard"
        )


def has_package(python: Path, name: str) -> bool:
    """Whether the environment of an interpreter has a package."""
    check = f"import importlib.util as u; raise SystemExit(u.find_spec('{name}') is None)"
    return subprocess.run([str(python), "-c", check]).returncode == 0


# Tracker -> the variable that names its server.
_SERVERS: dict[str, str] = {
    "wandb": "WANDB_BASE_URL",
    "mlflow": "MLFLOW_TRACKING_URI",
    "swanlab": "SWANLAB_API_HOST",
}
