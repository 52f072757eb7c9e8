"""Settings of the service."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.yaml_config import ConfigModel

Origin = Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*://[^/\s*]+$")]

_MIB = 2**20


class RequestLimits(ConfigModel):
    """Limits on the size of requests."""

    bytes: int = Field(32 * _MIB, ge=1, description="Bytes of a request's body")
    bodies: int = Field(256 * _MIB, ge=1, description="Bytes of all bodies that are being read")
    read_seconds: float = Field(
        30, gt=0, description="Time in which a request's head, or its body, must arrive"
    )
    text: int = Field(32_000, ge=1, description="Characters of a request")
    pictures: int = Field(16, ge=0, description="Images of a request")
    picture_bytes: int = Field(20 * _MIB, ge=1, description="Bytes of an image of a request")
    files: int = Field(1000, ge=0, description="Uploaded files of an API key")
    files_bytes: int = Field(1024 * _MIB, ge=0, description="Bytes of all of them")
    pixels: int = Field(4096 * 4096, ge=1, description="Pixels of an image of a request")
    steps: int = Field(100, ge=1, description="Highest `max_steps` of a request")
    t_max: int = Field(20, ge=1, le=100, description="Highest `t_max` of a request")
    candidates: int = Field(4, ge=1, le=16, description="Highest `candidates` of a request")
    agents: tuple[str, ...] = Field(
        (),
        description="Folders and ids at Hugging Face that requests may name as planner or critic, "
        "besides `promoted` and name@version",
    )


class RetentionSettings(ConfigModel):
    """Which stored responses are deleted, as by `DELETE /v1/responses/{id}`; null: none."""

    days: float | None = Field(None, gt=0, description="Those that are older")
    responses: int | None = Field(
        None, ge=0, description="Those of an API key beyond so many newer ones"
    )

    @property
    def is_set(self) -> bool:
        return self.days is not None or self.responses is not None


class LogSettings(ConfigModel):
    """Logs on standard error, a JSON object per line."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level that is logged"
    )
    prompts: bool = Field(
        False, description="Also log users' texts, and messages of exceptions, which may quote them"
    )


class ServiceSettings(ConfigModel):
    """Where the service listens, its limits, and its logs."""

    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8030, ge=0, le=65535, description="Port to listen on; 0: any free one")
    cors_origins: tuple[Origin, ...] = Field(
        (), description="Other origins, as https://example.com, whose pages may call the API"
    )
    agents: Literal["auto", "promoted", "profile"] = Field(
        "auto",
        description="Planner and critic: the promoted checkpoints, the profile's own agents, or "
        "(auto) the promoted ones if there are both",
    )
    running: int = Field(16, ge=1, description="Requests that run at the same time")
    waiting: int = Field(256, ge=0, description="Requests that may wait; further ones get 429")
    per_key: int = Field(64, ge=1, description="Requests of one API key that wait or run")
    connections: int = Field(1024, ge=1, description="Open HTTP requests, streams included")
    deadline_seconds: float = Field(
        3600, gt=0, description="How long a request may wait and run before it is interrupted"
    )
    grace_seconds: float = Field(
        30, ge=0, description="How long a stopped service waits for running requests"
    )
    ping_seconds: float = Field(
        15,
        gt=0,
        description="Time between comments in a quiet stream, so that proxies keep it open",
    )
    stalled_seconds: float = Field(
        60, gt=0, description="A stream that its client does not read for so long is closed"
    )
    limits: RequestLimits = RequestLimits()
    logs: LogSettings = LogSettings()
    retention: RetentionSettings = RetentionSettings()
