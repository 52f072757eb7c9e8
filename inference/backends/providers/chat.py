"""A conversation with a model, whichever provider it is at; what each adapter translates."""

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from pydantic import JsonValue

from warehouse import EncodedImage

from ...engine.hashing import stable_hash
from ...engine.usage import report_usage
from ...roles import UnusableAnswerError
from .budget import Budget, Reservation
from .endpoints import Endpoints, EndpointSettings
from .prices import Price

if TYPE_CHECKING:
    from .batches import BatchClient

Client = TypeVar("Client")

# Bounds for what a call may cost: real ones are below.
_CHARACTERS_PER_TOKEN = 2
_TOKENS_OF_A_PICTURE = 3_000
_LONGEST_BATCH_SECONDS = 26 * 3600.0


@dataclass(frozen=True)
class ChatTurn:
    """What one side says: texts and pictures in order."""

    side: Literal["user", "model"]
    parts: tuple[str | EncodedImage, ...]


@dataclass(frozen=True)
class CompletionRequest:
    """All that is sent. `schema`: JSON schema of the answer, enforced by the provider.

    `draws`: the answer is a picture. `patient`: it may take a day, at the price of a batch.
    """

    model: str
    turns: tuple[ChatTurn, ...]
    system: str | None = None
    schema: dict[str, Any] | None = None
    max_tokens: int = 8192
    temperature: float | None = None
    seed: int | None = None
    draws: bool = False
    patient: bool = False
    options: dict[str, JsonValue] = field(default_factory=dict)

    def followed_by(self, *turns: ChatTurn) -> "CompletionRequest":
        """The conversation goes on, at once."""
        return replace(self, turns=(*self.turns, *turns), patient=False)

    @cached_property
    def digest(self) -> str:
        """The same for the same question, in every run."""
        turns = [[turn.side, *map(_named, turn.parts)] for turn in self.turns]
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "turns"}
        return stable_hash(turns, rest)

    @property
    def bytes(self) -> int:
        """About what it takes on the way; pictures are sent as base64."""
        parts = [part for turn in self.turns for part in turn.parts]
        sizes = (len(p) if isinstance(p, str) else len(p.data) * 4 // 3 for p in parts)
        return sum(sizes) + len(self.system or "") + len(str(self.schema or ""))

    def most_tokens(self) -> int:
        """An upper bound of its input tokens."""
        parts = [part for turn in self.turns for part in turn.parts]
        texts = [part for part in parts if isinstance(part, str)]
        letters = sum(map(len, texts)) + len(self.system or "") + len(str(self.schema or ""))
        pictures = len(parts) - len(texts)
        return letters // _CHARACTERS_PER_TOKEN + pictures * _TOKENS_OF_A_PICTURE


def _named(part: str | EncodedImage) -> str:
    return part if isinstance(part, str) else f"picture {part.sha256}"


@dataclass(frozen=True)
class CompletionResult:
    """What came back; a `refusal` is paid for like any other answer.

    `whole` is false where it was cut off at `max_tokens`.
    """

    text: str
    whole: bool = True
    refusal: str | None = None
    pictures: tuple[EncodedImage, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class Adapter(Protocol[Client]):
    """A provider's SDK; its errors become `TryLater`, `Throttled`, `KeyRefused` or `UnusableAnswerError`."""

    def connect(self, endpoint: EndpointSettings) -> Client: ...

    async def close(self, client: Client) -> None: ...

    async def answer(self, client: Client, question: CompletionRequest) -> CompletionResult: ...


class Chat(Generic[Client]):
    """A provider's endpoints, prices and budget: the one way its models are asked.

    Args:
        prices: by model; a model that is not in it costs nothing that we know of.
        budget: None: as much as it takes.
        batches: where patient questions go; None: they are asked like any other.
    """

    def __init__(
        self,
        adapter: Adapter[Client],
        endpoints: Endpoints[Client],
        prices: dict[str, Price],
        budget: Budget | None = None,
        batches: "BatchClient[Client] | None" = None,
    ) -> None:
        self._adapter, self._endpoints = adapter, endpoints
        self._prices, self._budget, self._batches = prices, budget, batches

    async def ask(self, question: CompletionRequest) -> CompletionResult:
        """The reply of whichever endpoint has room. A refusal may be a whim: it is asked again.

        Raises:
            BadAnswer: the model, or its provider, refuses twice.
            TryLater, BackendError: see `inference/roles.py`.
        """
        reply = await self._answer(question)
        if reply.refusal is not None:
            report_usage(retries=1)
            reply = await self._answer(replace(question, patient=False))
        if reply.refusal is not None:
            raise UnusableAnswerError(f"{question.model} refuses: {reply.refusal}")
        return reply

    async def _answer(self, question: CompletionRequest) -> CompletionResult:
        price = self._prices.get(question.model, Price())
        async with self._reserved(question, price) as reservation:
            reply = await self._sent(question)
            reservation.cost = _cost(question, reply, price)
        self._report(question, reply)
        return reply

    async def _sent(self, question: CompletionRequest) -> CompletionResult:
        if question.patient and self._batches:
            return await self._batches.ask(question)
        return await self._endpoints.call(partial(self._adapter.answer, question=question))

    def _reserved(
        self, question: CompletionRequest, price: Price
    ) -> AbstractAsyncContextManager[Reservation]:
        tokens, pictures = question.most_tokens(), int(question.draws)
        most = price.cost(tokens, question.max_tokens, pictures=pictures) * _share(question, price)
        if self._budget is None:
            return nullcontext(Reservation(most))
        if question.patient:
            return self._budget.reserved(most, question.digest, _LONGEST_BATCH_SECONDS)
        return self._budget.reserved(most)

    def _report(self, question: CompletionRequest, reply: CompletionResult) -> None:
        price = self._prices.get(question.model)
        report_usage(
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            cost_usd=None if price is None else _cost(question, reply, price),
        )


def _cost(question: CompletionRequest, reply: CompletionResult, price: Price) -> float:
    tokens = reply.input_tokens, reply.output_tokens, reply.cached_tokens
    return price.cost(*tokens, pictures=len(reply.pictures)) * _share(question, price)


def _share(question: CompletionRequest, price: Price) -> float:
    return price.batch if question.patient else 1.0
