"""What the driver of a server is told."""

from pydantic import Field

from schemas.yaml_config import ConfigModel

DRIVER = f"{__package__}.driver"


class ServerJob(ConfigModel):
    """The process to run."""

    command: list[str] = Field(description="vLLM's command line")
    variables: dict[str, str] = Field(description="Variables beside those of this process")
