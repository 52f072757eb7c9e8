"""Completions of hosted models: the request that adapters translate, and the client."""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, Protocol

from pydantic import JsonValue

from warehouse import EncodedImage

from ...calls.hashing import stable_hash
from ...calls.retry import announce_request, report_usage
from ...roles import UnusableAnswerError
from .budget import Budget, Reservation
from .endpoints import Endpoints
from .errors import NoAnswerError
from .settings import EndpointSettings, Price
from .structured import CompletionResult

# Upper bounds of what a call may cost: actual numbers are lower.
_MIN_CHARACTERS_PER_TOKEN = 2
_MAX_TOKENS_PER_IMAGE = 3_000
_MAX_BATCH_SECONDS = 26 * 3600.0
# What a call probably costs.
_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_IMAGE = 1_000
_LIKELY_OUTPUT_TOKENS = 1_024
_SIMILAR_REQUESTS = 8

BatchResult = CompletionResult | Exception


@dataclass(frozen=True)
class ChatTurn:
    """A message: texts and images in order."""

    side: Literal["user", "model"]
    parts: tuple[str | EncodedImage, ...]


@dataclass(frozen=True)
class CompletionRequest:
    """A request to a model.

    Args:
        schema: JSON schema of the answer, enforced by the provider.
        returns_image: the answer is an image.
        uses_batch_api: it may take a day, at the price of a batch.
        options: more fields of the provider's request.
    """

    model: str
    turns: tuple[ChatTurn, ...]
    system: str | None = None
    schema: dict[str, Any] | None = None
    max_tokens: int = 8192
    temperature: float | None = None
    seed: int | None = None
    returns_image: bool = False
    uses_batch_api: bool = False
    options: dict[str, JsonValue] = field(default_factory=dict)

    def followed_by(self, *turns: ChatTurn) -> "CompletionRequest":
        """The continued conversation, without the batch API."""
        return replace(self, turns=(*self.turns, *turns), uses_batch_api=False)

    @cached_property
    def digest(self) -> str:
        """Hash of the request, by which later runs find its batch; never change its keys."""
        turns = [[turn.side, *map(_hashed_part, turn.parts)] for turn in self.turns]
        fields = {
            "model": self.model,
            "system": self.system,
            "schema": self.schema,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "draws": self.returns_image,
            "patient": self.uses_batch_api,
            "options": self.options,
        }
        return stable_hash(turns, fields)

    @property
    def size_bytes(self) -> int:
        """About what it takes on the wire; images are sent as base64."""
        return sum(len(image.data) * 4 // 3 for image in self.images) + self._text_length

    @property
    def max_input_tokens(self) -> int:
        """An upper bound of its input tokens."""
        text_tokens = self._text_length // _MIN_CHARACTERS_PER_TOKEN
        return text_tokens + len(self.images) * _MAX_TOKENS_PER_IMAGE

    @property
    def likely_input_tokens(self) -> int:
        text_tokens = self._text_length // _CHARACTERS_PER_TOKEN
        return text_tokens + len(self.images) * _TOKENS_PER_IMAGE

    @property
    def images(self) -> list[EncodedImage]:
        parts = (part for turn in self.turns for part in turn.parts)
        return [part for part in parts if isinstance(part, EncodedImage)]

    @property
    def texts(self) -> list[str]:
        return [part for turn in self.turns for part in turn.parts if isinstance(part, str)]

    @property
    def _text_length(self) -> int:
        return sum(map(len, (*self.texts, self.system or "", str(self.schema or ""))))


def _hashed_part(part: str | EncodedImage) -> str:
    return part if isinstance(part, str) else f"picture {part.sha256}"


class Adapter(Protocol):
    """A provider's SDK, with clients of its own type.

    Its errors become `RetryableError`, `ThrottledError`, `EndpointUnusableError` or
    `UnusableAnswerError`.
    """

    max_batch_bytes: int

    def connect(self, endpoint: EndpointSettings) -> Any: ...

    async def close(self, client: Any) -> None: ...

    async def complete(self, client: Any, request: CompletionRequest) -> CompletionResult: ...

    async def submit(
        self, client: Any, name: str, requests: Mapping[str, CompletionRequest]
    ) -> str:
        """Submit requests of one model, by digest; the provider's id of the batch."""

    async def find(self, client: Any, name: str) -> str | None:
        """The id of the batch of a name; None: the provider never received it."""

    async def results(self, client: Any, batch_id: str) -> Mapping[str, BatchResult] | None:
        """Result or error of each request, by digest; None: the batch is not done yet."""


class LikelyCosts:
    """What a request will probably cost: as much as the dearest of the last similar answered ones.

    Similar are requests to one model for the same form of answer. Before there is one, the answer
    is taken to have `_LIKELY_OUTPUT_TOKENS`.
    """

    def __init__(self) -> None:
        self._recent: dict[tuple[object, ...], deque[float]] = {}

    def of(self, request: CompletionRequest, price: Price) -> float:
        """In USD."""
        if recent := self._recent.get(_form(request)):
            return max(recent)
        tokens = min(_LIKELY_OUTPUT_TOKENS, request.max_tokens)
        return price.cost(request.likely_input_tokens, tokens, images=int(request.returns_image))

    def note(self, request: CompletionRequest, price: Price, result: CompletionResult) -> None:
        """Take a result's cost as an example, if it has what was asked for: others are cheaper."""
        if result.refusal is not None or (request.returns_image and not result.images):
            return
        recent = self._recent.setdefault(_form(request), deque(maxlen=_SIMILAR_REQUESTS))
        recent.append(_cost(price, result))


def _cost(price: Price, result: CompletionResult) -> float:
    tokens = result.input_tokens, result.output_tokens, result.cached_tokens
    return price.cost(*tokens, images=len(result.images))


def _form(request: CompletionRequest) -> tuple[object, ...]:
    schema = (request.schema or {}).get("title")
    return request.model, schema, request.system, request.returns_image, len(request.images)


@dataclass(frozen=True)
class CompletionClient:
    """Sends requests to a provider's models, within the budget; reports tokens and cost.

    Args:
        prices: by model; the cost of a model that is not in it is unknown.
        budget: None: no limit.
        batches: its `BatchClient`; None: there is no batch API.
    """

    adapter: Adapter
    endpoints: Endpoints
    prices: dict[str, Price]
    budget: Budget | None
    batches: Any
    likely_costs: LikelyCosts = field(default_factory=LikelyCosts)

    async def complete(self, request: CompletionRequest) -> CompletionResult:
        """The answer to a request. After a refusal, which may be random, it is sent once more.

        Raises:
            UnusableAnswerError: the model, or its provider, refuses twice.
            RetryableError, BackendError: see `inference/roles.py`.
        """
        result = await self._complete_once(request)
        if result.refusal is not None:
            report_usage(retries=1)
            result = await self._complete_once(replace(request, uses_batch_api=False))
        if result.refusal is not None:
            raise UnusableAnswerError(f"{request.model} refuses: {result.refusal}")
        return result

    async def _complete_once(self, request: CompletionRequest) -> CompletionResult:
        price = self.prices.get(request.model, Price())
        share = price.batch if request.uses_batch_api else 1.0
        async with self._reserve(request, price, share) as reservation:
            result = await self._send(request, price, reservation)
            cost = _cost(price, result) * share
            reservation.cost += cost
            report_usage(  # here: the end of a reservation may fail
                input_tokens=result.input_tokens,
                output_tokens=result.output_tokens,
                cost_usd=cost if request.model in self.prices else None,
            )
        return result

    async def _send(
        self, request: CompletionRequest, price: Price, reservation: Reservation
    ) -> CompletionResult:
        if request.uses_batch_api and self.batches:
            if request.model in self.prices:
                likely = self.likely_costs.of(request, price) * price.batch
                await announce_request(likely, resumable=True)
            return await self.batches.complete(request)
        send = partial(self._send_once, request=request, price=price, reservation=reservation)
        return await self.endpoints.call(send)

    async def _send_once(
        self, client: Any, request: CompletionRequest, price: Price, reservation: Reservation
    ) -> CompletionResult:
        """Send a request; if no answer comes, its likely cost is booked as an estimate."""
        if request.model not in self.prices:
            return await self.adapter.complete(client, request)
        likely = self.likely_costs.of(request, price)
        await announce_request(likely)
        try:
            result = await self.adapter.complete(client, request)
        except (NoAnswerError, TimeoutError, asyncio.CancelledError):
            reservation.cost += likely
            report_usage(cost_usd=likely, estimated_usd=likely)
            raise
        self.likely_costs.note(request, price, result)
        return result

    def _reserve(
        self, request: CompletionRequest, price: Price, share: float
    ) -> AbstractAsyncContextManager[Reservation]:
        if self.budget is None:
            return nullcontext(Reservation())
        tokens, images = request.max_input_tokens, int(request.returns_image)
        max_cost = price.cost(tokens, request.max_tokens, images=images) * share
        if request.uses_batch_api:
            return self.budget.reserve(max_cost, request.digest, _MAX_BATCH_SECONDS)
        return self.budget.reserve(max_cost)
