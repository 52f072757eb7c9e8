"""Settings of an images server."""

from typing import Literal

from pydantic import Field

from schemas.yaml_config import ConfigModel

_MIB = 2**20


class ImageLimits(ConfigModel):
    """Limits of one request."""

    bytes: int = Field(100 * _MIB, ge=1, description="Size of a request's body")
    pixels: int = Field(4096 * 4096, ge=1, description="Pixels of an image, input or output")
    steps: int = Field(500, ge=1, description="Denoising steps")
    seconds: float = Field(
        1800, gt=0, description="How long a request may wait and run before it is cancelled"
    )


class ImagesServerSettings(ConfigModel):
    """Where it listens, and the replicas behind it."""

    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8010, ge=0, le=65535, description="Port to listen on; 0: any free one")
    replicas: int | None = Field(
        None, ge=1, description="Copies of the model; null: one for each GPU, or one on CPUs"
    )
    batch: int = Field(4, ge=1, description="Images that a replica generates at once, at most")
    queue: int = Field(64, ge=0, description="Images that may wait until replicas are free")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: a GPU for each replica where Ray has any, else CPUs"
    )
    offload: bool = Field(
        False,
        description="Parts of the model wait in main memory until they compute: less GPU memory, "
        "some seconds more for a batch",
    )
    ray: str | None = Field(
        None,
        description="Address (host:port, or auto) of a running Ray cluster of which this machine "
        "is a node; null: start a local Ray, which ends with the server",
    )
    gather_seconds: float = Field(
        0.02, ge=0, description="How long the first image of a batch waits for others"
    )
    grace_seconds: int = Field(
        30, ge=0, description="Time that requests under way get to finish when the server stops"
    )
    allowed: ImageLimits = ImageLimits()
