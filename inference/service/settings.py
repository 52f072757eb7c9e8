"""What may be set about the service."""

from typing import Literal

from pydantic import Field

from schemas.yaml_config import ConfigModel

_MIB = 2**20


class RequestLimits(ConfigModel):
    """How large a request may be."""

    bytes: int = Field(32 * _MIB, ge=1, description="Of a request's body")
    bodies: int = Field(256 * _MIB, ge=1, description="Of all bodies that are being read")
    read_seconds: float = Field(
        30, gt=0, description="A head or body of a request that takes longer is given up"
    )
    text: int = Field(32_000, ge=1, description="Characters of a request, all in all")
    pictures: int = Field(16, ge=0, description="Pictures given with a request")
    picture_bytes: int = Field(20 * _MIB, ge=1, description="Of a given picture")
    pixels: int = Field(4096 * 4096, ge=1, description="Of a given picture")
    steps: int = Field(100, ge=1, description="The most that a request may set `max_steps` to")
    t_max: int = Field(20, ge=1, le=100, description="Likewise, `t_max`")
    candidates: int = Field(4, ge=1, le=16, description="Likewise, `candidates`")
    remote_pictures: bool = Field(
        False,
        description="Fetch pictures from http(s) addresses that requests name; never from private "
        "ones",
    )


class LogSettings(ConfigModel):
    """What goes to standard error, a JSON object a line."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="From which on")
    prompts: bool = Field(
        False, description="Also what users ask for, and messages of errors that may quote it"
    )


class ServiceSettings(ConfigModel):
    """Where it listens, how much it takes on, and what it refuses."""

    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8030, ge=0, le=65535, description="Port to listen on; 0: any free one")
    agents: Literal["auto", "promoted", "profile"] = Field(
        "auto",
        description="Who plans and judges: the promoted checkpoints, the profile's own agents, or "
        "(auto) promoted ones where there are both",
    )
    running: int = Field(16, ge=1, description="Requests told at once")
    waiting: int = Field(256, ge=0, description="Requests that may wait; more are refused (429)")
    per_key: int = Field(
        64, ge=1, description="Requests of one API key at once, waiting ones included"
    )
    connections: int = Field(
        1024, ge=1, description="HTTP requests open at once, listeners of streams included"
    )
    deadline_seconds: float = Field(
        3600, gt=0, description="How long a request may wait and be told before it is given up"
    )
    grace_seconds: float = Field(
        30, ge=0, description="What a stopped service gives to requests that are under way"
    )
    ping_seconds: float = Field(
        15, gt=0, description="A stream without news gets a comment, so that proxies keep it open"
    )
    stalled_seconds: float = Field(
        60, gt=0, description="A stream that nobody reads from for so long is closed"
    )
    limits: RequestLimits = RequestLimits()
    logs: LogSettings = LogSettings()
