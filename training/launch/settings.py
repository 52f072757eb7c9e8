"""Where trainers run."""

from typing import Literal

from pydantic import Field, PositiveFloat, model_validator

from schemas.yaml_config import ConfigModel


class LauncherSettings(ConfigModel):
    """Trainers on this machine, or as jobs of a Ray cluster that shares its file system."""

    kind: Literal["local", "ray"] = Field(default="local", description="Local process or Ray job")
    address: str | None = Field(
        default=None, description="Ray's job server, such as http://head:8265; null: local"
    )
    python: str | None = Field(
        default=None, description="Python with this package on the cluster; null: this one's path"
    )
    grace_seconds: PositiveFloat = Field(
        default=10.0, le=14.0, description="Between TERM and KILL when a run is terminated"
    )
    log_seconds: float = Field(
        default=10.0, ge=0, description="Least time between two progress lines in Dagster's log"
    )

    @model_validator(mode="after")
    def _has_an_address(self) -> "LauncherSettings":
        if self.kind == "ray" and not self.address:
            raise ValueError("kind ray needs an address, such as http://head:8265")
        return self
