"""A user's request, and the options it runs with."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from schemas import FoundryError
from schemas.errors import first_problem
from schemas.generations import Channel
from warehouse import ImageStore

from ..calls.hashing import stable_hash
from ..events import StoredImage
from ..settings import LoopSettings


class GenerationOptions(LoopSettings):
    """Loop settings of one request."""

    candidates: int = Field(
        1,
        ge=1,
        le=16,
        description="Images generated for each prompt of a step; the first that the critic "
        "accepts is chosen",
    )
    draw_ahead: bool = Field(
        True,
        description="Generate the next step's image while the critic still judges this one, where "
        "the generator is idle; the result is the same",
    )


class RequestedAgents(NamedTuple):
    """The agents that a request names; those it does not name are the ones in use.

    Args:
        planner: `promoted`, name@version, a folder, or an id at Hugging Face.
        critic: likewise; or `rl` or `sft`: the checkpoint of that training; or `base`: the
            profile's own, as planner, too.
    """

    planner: str | None = None
    critic: str | None = None


IN_USE = RequestedAgents()


@dataclass(frozen=True)
class GenerationRequest:
    """A request; one with the `generation_id` of an interrupted one continues it."""

    text: str
    images: tuple[StoredImage, ...] = ()  # `<image>` in `text` may stand for each, in order
    options: GenerationOptions = field(default_factory=GenerationOptions)
    agents: RequestedAgents = IN_USE
    channel: Channel = "command"
    generation_id: str = field(default_factory=lambda: secrets.token_hex(16))
    key: str | None = None  # the client's own name for the request
    resumes: bool = False  # there was an earlier run under its `generation_id`

    @property
    def prompt_id(self) -> str:
        """Equal for equal text and images, so that equal seeds give equal results."""
        return stable_hash("request", self.text, [image.sha256 for image in self.images])

    @property
    def shard(self) -> str:
        """Shard of its rows and its journal until the sink moves the rows to a partition."""
        return self.generation_id


_ADAPTER = TypeAdapter(GenerationRequest)


def dump_request(request: GenerationRequest) -> dict[str, Any]:
    """A request as JSON, its images by sha256."""
    dumped: dict[str, Any] = _ADAPTER.dump_python(request, mode="json")
    return dumped


def load_request(content: Mapping[str, Any], images: ImageStore) -> GenerationRequest:
    """The request of `dump_request`; its images are read when they are used."""
    return _ADAPTER.validate_python(content, context={"images": images})


def override_options(defaults: LoopSettings, changes: Mapping[str, object]) -> GenerationOptions:
    """A profile's loop settings with a request's changes; FoundryError if one is invalid."""
    try:
        return GenerationOptions.model_validate({**defaults.model_dump(), **changes})
    except ValidationError as error:
        value = error.errors(include_url=False)[0]["input"]
        raise FoundryError(f"{first_problem(error)}, not {value!r}") from error


def check_text(text: str, images: int) -> None:
    """Raise FoundryError if a request's text is empty, or has more `<image>` than `images`."""
    if not text.strip():
        raise FoundryError("the request is empty: describe what you want to see")
    placeholders = len(re.findall("<image>", text, re.IGNORECASE))
    if placeholders > images:
        number = "1 image is" if images == 1 else f"{images or 'no'} images are"
        raise FoundryError(
            f"the text has {placeholders} <image>, and {number} given: give one for each"
        )
