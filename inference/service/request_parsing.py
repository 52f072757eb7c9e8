"""From a request's body to a story to be told."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from schemas import BadImageError
from warehouse import EncodedImage, Home

from ..generation.requests import GenerationOptions, GenerationRequest
from ..http.errors import APIError, bad_request
from ..settings import LoopSettings
from .chat.protocol import ChatRequest
from .content import ConversationTurn, ImageRef, composed, current_turn
from .image_inputs import load_images
from .request_options import MODELS, RequestOptions
from .responses.protocol import ResponsesRequest
from .responses.response_builder import RequestEcho
from .settings import RequestLimits

Json = dict[str, Any]
# A Response by its id, if there is one of the one who asks.
Find = Callable[[str], Json | None]


@dataclass(frozen=True)
class ParsedRequest:
    """A request, checked.

    Args:
        background: it goes on when nobody listens.
        store: it is kept when it is over.
    """

    story: GenerationRequest
    echoed: Json
    background: bool = False
    store: bool = True

    @property
    def asked(self) -> RequestEcho:
        """What its Response says of it."""
        story = self.story
        given = tuple(picture.sha256 for picture in story.pictures)
        rules = story.rules.model_dump()
        return RequestEcho(story.generation_id, story.text, given, rules, self.echoed)

    def under(self, key: str | None) -> "ParsedRequest":
        """The same wish under the requester's own name for it."""
        return replace(self, story=replace(self.story, key=key))

    def named(self, generation_id: str, created_at: float) -> "ParsedRequest":
        """The same wish as a request that was begun before."""
        story = replace(self.story, generation_id=generation_id)
        return replace(self, story=story, echoed=self.echoed | {"created_at": created_at})


class RequestParser:
    """Reads requests by the rules of a profile and the limits of a service."""

    def __init__(self, home: Home, usual: LoopSettings, limits: RequestLimits) -> None:
        self._home, self._usual, self._limits = home, usual, limits

    async def of_responses(self, asked: ResponsesRequest, find: Find, now: int) -> ParsedRequest:
        """A wish for a Response.

        Raises:
            Refusal: it cannot be fulfilled.
        """
        if asked.background and asked.store is False:
            raise bad_request("what runs in the background has to be stored", "store")
        previous = asked.previous_response_id
        before = () if previous is None else await self._before(previous, find)
        settings = asked.interleave or RequestOptions()
        story = await self._story(asked.turns(), before, asked.model, settings, "input")
        echoed = {
            "created_at": now,
            "model": asked.model or next(iter(MODELS)),
            "background": bool(asked.background),
            "instructions": asked.instructions,
            "metadata": asked.metadata or {},
            "previous_response_id": previous,
            "store": asked.store is not False,
        }
        return ParsedRequest(story, echoed, bool(asked.background), asked.store is not False)

    async def of_chat(self, asked: ChatRequest, now: int) -> ParsedRequest:
        """A wish for a chat's next message; `of_responses` says the rest."""
        settings = asked.interleave or RequestOptions()
        if asked.seed is not None and settings.seed is None:
            settings = settings.model_copy(update={"seed": asked.seed})
        story = await self._story(asked.turns(), (), asked.model, settings, "messages")
        echoed = {
            "created_at": now,
            "model": asked.model or next(iter(MODELS)),
            "background": False,
            "metadata": asked.metadata or {},
        }
        return ParsedRequest(story, echoed)

    async def _story(
        self,
        turns: list[ConversationTurn],
        before: tuple[EncodedImage, ...],
        model: str | None,
        settings: RequestOptions,
        param: str,
    ) -> GenerationRequest:
        critic = critic_of(model)
        rules: GenerationOptions = settings.rules(self._usual, self._limits)
        pieces = current_turn(turns)
        text = composed(pieces, len(before))
        if not any(isinstance(piece, str) and piece.strip() for piece in pieces):
            raise bad_request("say what to tell: there are no words in it", param)
        if len(text) > self._limits.text:
            raise bad_request(
                f"the text has {len(text)} characters; at most {self._limits.text} are taken",
                param,
                "string_above_max_length",
            )
        sights = [piece for piece in pieces if isinstance(piece, ImageRef)]
        pictures = (*before, *await load_images(sights, self._limits))
        return GenerationRequest(text, pictures, rules, settings.critic or critic, "service")

    async def _before(self, response_id: str, find: Find) -> tuple[EncodedImage, ...]:
        """The last picture of an earlier story; none where it was words alone."""
        response = find(response_id)
        if response is None:
            raise bad_request(
                f"there is no response {response_id}",
                "previous_response_id",
                "previous_response_not_found",
            )
        if response["status"] in ("queued", "in_progress"):
            raise bad_request(f"{response_id} is not over yet", "previous_response_id")
        steps = response["interleave"]["steps"]
        return await asyncio.to_thread(self._last_picture, steps)

    def _last_picture(self, steps: list[Mapping[str, Any]]) -> tuple[EncodedImage, ...]:
        names = [step["picture"] for step in steps if step["picture"]]
        try:
            return tuple(map(self._home.images.get, names[-1:]))
        except BadImageError:
            message = "its last picture is not there any more"
            raise bad_request(message, "previous_response_id") from None


def critic_of(model: str | None) -> str | None:
    """The critic that a model's name means.

    Raises:
        Refusal: no model has that name.
    """
    name = model or next(iter(MODELS))
    if name not in MODELS:
        known = ", ".join(MODELS)
        message = f"no model {name} here: there are {known}"
        raise APIError(HTTPStatus.NOT_FOUND, message, "model_not_found", "model")
    return MODELS[name]
