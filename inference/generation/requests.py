"""What a user asks for, and by which rules it is told."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field, ValidationError

from schemas import FoundryError
from schemas.generations import Door
from warehouse import EncodedImage

from ..engine.hashing import stable_hash
from ..settings import LoopSettings

_PLACEHOLDER = re.compile("<image>", re.IGNORECASE)


class GenerationOptions(LoopSettings):
    """Rules of the loop for one request."""

    candidates: int = Field(
        1,
        ge=1,
        le=16,
        description="Pictures drawn for each prompt of a step; the first that the "
        "critic accepts counts",
    )
    draw_ahead: bool = Field(
        True,
        description="Draw the next step while the critic still looks at this one, where the "
        "generator has nothing better to do; the story stays the same",
    )


@dataclass(frozen=True)
class GenerationRequest:
    """A request.

    Args:
        pictures: given with it; `<image>` in the text may stand for each, in order.
        critic: how strict a critic: `rl` or `sft`, the checkpoint of that training; None: the one
            in use.
        generation_id: unique; the same again goes on where the first one was interrupted.
        key: the requester's own name for it.
    """

    text: str
    pictures: tuple[EncodedImage, ...] = ()
    rules: GenerationOptions = field(default_factory=GenerationOptions)
    critic: str | None = None
    door: Door = "command"
    generation_id: str = field(default_factory=lambda: new_id())
    key: str | None = None

    @property
    def prompt_id(self) -> str:
        """Equal for equal words and pictures, so that equal seeds draw the same story."""
        return prompt_id_of(self.text, [picture.sha256 for picture in self.pictures])


def options_of(usual: LoopSettings, changes: Mapping[str, object]) -> GenerationOptions:
    """The rules of a request: a profile's, with what the request changes.

    Raises:
        FoundryError: a change names no rule, or has a value that no rule can have.
    """
    try:
        return GenerationOptions.model_validate({**usual.model_dump(), **changes})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise FoundryError(f"{name}: {first['msg']}, not {first['input']!r}") from error


def check_text(text: str, pictures: int) -> None:
    """Refuse a text that says nothing, or speaks of more pictures than are given with it.

    Raises:
        FoundryError: it does.
    """
    if not text.strip():
        raise FoundryError("the request is empty: say in words what to tell")
    named = len(_PLACEHOLDER.findall(text))
    if named > pictures:
        given = "1 picture is" if pictures == 1 else f"{pictures or 'no'} pictures are"
        raise FoundryError(f"the text has {named} <image>, and {given} given: give one for each")


def prompt_id_of(text: str, given: Sequence[str]) -> str:
    """The id of words and pictures (their sha256)."""
    return stable_hash("request", text, list(given))


def new_id() -> str:
    """An id for a request."""
    return secrets.token_hex(16)
