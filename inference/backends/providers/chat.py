"""Completions of hosted models: the request and result that adapters translate, and the client."""

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Generic, Literal, Protocol, TypeVar

from pydantic import JsonValue

from warehouse import EncodedImage

from ...engine.hashing import stable_hash
from ...engine.usage import report_usage
from ...roles import UnusableAnswerError
from .budget import Budget, Reservation
from .endpoints import Endpoints
from .settings import EndpointSettings, Price

Client = TypeVar("Client")

# Upper bounds of what a call may cost: actual numbers are lower.
_MIN_CHARACTERS_PER_TOKEN = 2
_MAX_TOKENS_PER_IMAGE = 3_000
_MAX_BATCH_SECONDS = 26 * 3600.0


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
        sizes = (len(image.data) * 4 // 3 for image in self._images)
        return sum(sizes) + self._text_length

    def max_input_tokens(self) -> int:
        """An upper bound of its input tokens."""
        text_tokens = self._text_length // _MIN_CHARACTERS_PER_TOKEN
        return text_tokens + len(self._images) * _MAX_TOKENS_PER_IMAGE

    @property
    def _parts(self) -> list[str | EncodedImage]:
        return [part for turn in self.turns for part in turn.parts]

    @property
    def _images(self) -> list[EncodedImage]:
        return [part for part in self._parts if isinstance(part, EncodedImage)]

    @property
    def _text_length(self) -> int:
        texts = [part for part in self._parts if isinstance(part, str)]
        return sum(map(len, (*texts, self.system or "", str(self.schema or ""))))


def _hashed_part(part: str | EncodedImage) -> str:
    return part if isinstance(part, str) else f"picture {part.sha256}"


@dataclass(frozen=True)
class CompletionResult:
    """An answer. One with a `refusal` is paid for like any other.

    `is_complete` is false where it was cut off at `max_tokens`.
    """

    text: str
    is_complete: bool = True
    refusal: str | None = None
    images: tuple[EncodedImage, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class Adapter(Protocol[Client]):
    """A provider's SDK.

    Its errors become `RetryableError`, `ThrottledError`, `EndpointUnusableError` or
    `UnusableAnswerError`.
    """

    def connect(self, endpoint: EndpointSettings) -> Client: ...

    async def close(self, client: Client) -> None: ...

    async def complete(self, client: Client, request: CompletionRequest) -> CompletionResult: ...


class BatchApi(Protocol):
    """A provider's batch API; see `BatchClient`."""

    async def complete(self, request: CompletionRequest) -> CompletionResult: ...


class CompletionClient(Generic[Client]):
    """Sends requests to a provider's models, within the budget; reports tokens and cost.

    Args:
        prices: by model; the cost of a model that is not in it is unknown.
        budget: None: no limit.
        batches: the batch API; None: all requests are sent at once.
    """

    def __init__(
        self,
        adapter: Adapter[Client],
        endpoints: Endpoints[Client],
        prices: dict[str, Price],
        budget: Budget | None = None,
        batches: BatchApi | None = None,
    ) -> None:
        self._adapter, self._endpoints = adapter, endpoints
        self._prices, self._budget, self._batches = prices, budget, batches

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
        price = self._prices.get(request.model)
        async with self._reserve(request, price or Price()) as reservation:
            result = await self._send(request)
            cost = reservation.cost = _cost(request, result, price or Price())
        report_usage(
            input_tokens=result.input_tokens,
            output_tokens=result.output_tokens,
            cost_usd=None if price is None else cost,
        )
        return result

    async def _send(self, request: CompletionRequest) -> CompletionResult:
        if request.uses_batch_api and self._batches:
            return await self._batches.complete(request)
        return await self._endpoints.call(partial(self._adapter.complete, request=request))

    def _reserve(
        self, request: CompletionRequest, price: Price
    ) -> AbstractAsyncContextManager[Reservation]:
        tokens, images = request.max_input_tokens(), int(request.returns_image)
        cost = price.cost(tokens, request.max_tokens, images=images)
        max_cost = cost * _price_share(request, price)
        if self._budget is None:
            return nullcontext(Reservation(max_cost))
        if request.uses_batch_api:
            return self._budget.reserve(max_cost, request.digest, _MAX_BATCH_SECONDS)
        return self._budget.reserve(max_cost)


def _cost(request: CompletionRequest, result: CompletionResult, price: Price) -> float:
    tokens = result.input_tokens, result.output_tokens, result.cached_tokens
    return price.cost(*tokens, images=len(result.images)) * _price_share(request, price)


def _price_share(request: CompletionRequest, price: Price) -> float:
    return price.batch if request.uses_batch_api else 1.0
