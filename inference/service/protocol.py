"""What requests of the Responses and the chat API have in common: content, options, models.

A conversation becomes one request: its instructions, the last image of the last answer, and what
the user said since. Earlier turns are not read again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from schemas.trajectories import OnExhausted

from ..agent_prompts.templates import IMAGE, escape_tags
from ..generation.requests import GenerationOptions
from ..http.errors import APIError, bad_request
from ..settings import LoopSettings
from .settings import RequestLimits

MODELS: dict[str, str | None] = {"interleave": None, "interleave-rl": "rl", "interleave-sft": "sft"}
"""Names of the served models -> the critic of each; None: the current one."""
DEFAULT_MODEL = "interleave"

MAX_ITEMS = 1000
_MAX_SEED = 2**53

Role = Literal["system", "developer", "user", "assistant"]
Metadata = dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]]


class RequestPart(BaseModel):
    """A part of a request's content; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


@dataclass(frozen=True)
class ImageRef:
    """An image of a request.

    Args:
        url: a data URI, or http(s).
        param: the request's name for it, for error messages.
    """

    url: str
    param: str


ContentPart = str | ImageRef


@dataclass(frozen=True)
class ConversationTurn:
    """What one side said."""

    role: Role
    content: tuple[ContentPart, ...]


def current_turn(turns: Sequence[ConversationTurn]) -> list[ContentPart]:
    """The content to answer: instructions, the last answer's last image, what was said since."""
    last_answer = max((n for n, turn in enumerate(turns) if turn.role == "assistant"), default=-1)
    instructions = _content(turn for turn in turns if turn.role in ("system", "developer"))
    answers = _content(turns[: last_answer + 1], "assistant")
    images = [part for part in answers if isinstance(part, ImageRef)]
    return [*instructions, *images[-1:], *_content(turns[last_answer + 1 :], "user")]


def compose_text(content: Sequence[ContentPart], previous_images: int = 0) -> str:
    """The text, with an `<image>` for every image.

    Placeholders that the text already has are used if there are as many as images.

    Args:
        previous_images: images that come before the content.
    """
    texts = [part.strip() for part in content if isinstance(part, str)]
    images = previous_images + len(content) - len(texts)
    text = "\n".join(filter(None, texts))
    if not images or text.count(IMAGE) == images:
        return text
    lines = [IMAGE if isinstance(part, ImageRef) else escape_tags(part).strip() for part in content]
    return "\n".join(filter(None, [*[IMAGE] * previous_images, *lines]))


def critic_of(model: str | None) -> str | None:
    """The critic that a model's name stands for.

    Raises:
        APIError: there is no such model.
    """
    name = model or DEFAULT_MODEL
    if name not in MODELS:
        message = f"no model {name} here: there are {', '.join(MODELS)}"
        raise APIError(HTTPStatus.NOT_FOUND, message, "model_not_found", "model")
    return MODELS[name]


class RequestOptions(BaseModel):
    """The field `interleave` of a request: loop settings that differ from the profile's."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    t_max: int | None = Field(None, ge=1, le=100, description="Attempts allowed per step")
    on_exhausted: OnExhausted | None = Field(
        None, description="After that many: go on with the last image, the best, or stop"
    )
    conditioning: Literal["last", "all"] | None = Field(
        None, description="Images that the generator gets: the last one, or all"
    )
    seed: int | None = Field(
        None,
        ge=-_MAX_SEED,
        le=_MAX_SEED,
        description="Equal requests with equal seeds give equal results",
    )
    max_steps: int | None = Field(None, ge=1, le=10_000, description="Longer plans are an error")
    candidates: int | None = Field(
        None, ge=1, le=16, description="Images generated for each prompt of a step"
    )
    draw_ahead: bool | None = Field(
        None, description="Generate the next step's image while the critic judges this one"
    )
    critic: Literal["rl", "sft"] | None = Field(
        None, description="Which checkpoint judges; `model` may also say it"
    )

    def generation_options(
        self, defaults: LoopSettings, limits: RequestLimits
    ) -> GenerationOptions:
        """The options of the request, with the profile's as defaults.

        Raises:
            APIError: an option exceeds a limit of the service.
        """
        changes: dict[str, Any] = self.model_dump(exclude_none=True, exclude={"critic"})
        maxima = {"t_max": limits.t_max, "candidates": limits.candidates, "max_steps": limits.steps}
        for name, maximum in maxima.items():
            if changes.get(name, 0) > maximum:
                param = f"interleave.{name}"
                raise bad_request(f"{param}: at most {maximum} here", param)
        return GenerationOptions(**(defaults.model_dump() | changes))


def _content(turns: Iterable[ConversationTurn], role: Role | None = None) -> list[ContentPart]:
    return [part for turn in turns if role in (None, turn.role) for part in turn.content]
