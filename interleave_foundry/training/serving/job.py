"""What the driver of a server is told."""

from pydantic import Field

from ...schemas.documents import Section

DRIVER = f"{__package__}.driver"


class ServerJob(Section):
    """The process to run."""

    command: list[str] = Field(description="vLLM's command line")
    variables: dict[str, str] = Field(description="Variables beside those of this process")
