"""The one way any model is called: looked up in the shard's journal, else made and journaled.

A unit of work is one finished model call. It is journaled under its prompt, step, iteration, role
and a hash of the request, so that after a crash the same code runs again, finds what was finished
and calls only for the rest. A picture is stored before the line that names it, and a line is one
write: whatever moment a process dies at, a line that exists is true.

Every line becomes a `model_calls` row, failed calls and those of earlier settings included: they
were paid for. A replay adds none, the row stays that of the call that was made, so a table built
again is the same table. `cached` is true only where one asset was answered from another's journal;
such a row costs nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast
from weakref import WeakValueDictionary

from pydantic import TypeAdapter

from schemas import BadImageError
from schemas.trajectories import ModelCallRow, Role
from warehouse import EncodedImage, Home

from ..roles import (
    Backend,
    Plan,
    PlanRequest,
    Roles,
    Score,
    Scorer,
    UnusableAnswerError,
    Verdict,
    uses_batch_api,
)
from ..settings import Limits
from ..vocabulary_protocol import BankBrief, Expander, Proposals
from .call_index import CallIndex, CallKey, JournaledCall
from .ensemble import EnsembleScore, graded
from .hashing import stable_hash
from .retry import ANSWERS, CallFailedError, CallOutcome, RetryingCaller, summarize_error

T = TypeVar("T")

_TEXT_ANSWERS: dict[Role, TypeAdapter[Any]] = {
    role: TypeAdapter(kind) for role, kind in ANSWERS.items() if kind is not EncodedImage
}


class CallSite(NamedTuple):
    """Where in a shard a call belongs."""

    prompt_id: str
    step_number: int | None = None
    iteration: int | None = None


class CallResult(NamedTuple, Generic[T]):
    """An answer, and the ledger row of the call that gave it in this run or an earlier one."""

    answer: T
    call: ModelCallRow


@dataclass(frozen=True)
class _Request(Generic[T]):
    """A call to be made. `content` is all that the answer may depend on, as JSON."""

    role: Role
    backend: Backend
    place: CallSite
    content: dict[str, Any]
    images: int
    ask: Callable[[], Awaitable[T]]


def request_hash(role: Role, backend: Backend, content: dict[str, Any]) -> str:
    """Hash of who is asked for what: backend, model, texts, image hashes, seed."""
    return stable_hash(role, backend.backend, backend.model, content)


class JournaledCalls:
    """Calls made on behalf of one shard of one asset; a context manager that owns its journal.

    Every call raises `UnusableAnswerError` for a final refusal and `CallFailedError` when no try succeeded; errors
    of lake and journal (a full disk) pass through as they are.

    Args:
        lender: an asset whose journal of the same shard is consulted too, so that (say) a score
            that the loop already asked for is not paid for twice.
        limits: or the pools of calls that several journals share.
    """

    def __init__(
        self,
        home: Home,
        asset: str,
        shard: str,
        limits: Limits | RetryingCaller,
        lender: str | None = None,
    ) -> None:
        self._asset, self._shard = asset, shard
        self._images = home.images
        self._caller = limits if isinstance(limits, RetryingCaller) else RetryingCaller(limits)
        self._journal = home.journal(asset, shard)
        self._lender = home.journal(lender, shard) if lender else None
        self._finished = self._lent = CallIndex()
        self._asking: WeakValueDictionary[CallKey, asyncio.Lock] = WeakValueDictionary()

    def __enter__(self) -> Self:
        """Become the journal's only writer, then read what is finished."""
        self._journal.__enter__()
        try:
            self._finished = CallIndex.read(self._journal)
            self._lent = CallIndex.read(self._lender) if self._lender else CallIndex()
        except BaseException:
            self._journal.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._journal.close()

    async def picture(self, sha256: str) -> EncodedImage:
        """A stored picture. Raises `BadImageError` when it is missing or not what it was."""
        return await asyncio.to_thread(self._images.get, sha256)

    def ledger(self) -> list[ModelCallRow]:
        """A row per call ever made for this shard, in the order in which they finished."""
        return self._finished.ledger()

    async def _call(self, request: _Request[T]) -> CallResult[T]:
        digest = request_hash(request.role, request.backend, request.content)
        key = CallKey(*request.place, request.role, digest)
        async with self._asking.setdefault(key, asyncio.Lock()):  # the same at once: paid once
            return await self._finished_or_made(request, key)

    async def _finished_or_made(self, request: _Request[T], key: CallKey) -> CallResult[T]:
        line = self._finished.find(key) or await self._borrow(key)
        if line is None:
            return await self._make(request, key)
        if line.answer is None:
            raise _failure(line)
        try:
            return CallResult(cast(T, await self._restored(line)), line.call)
        except BadImageError:  # the picture was deleted since: the call is owed again
            return await self._make(request, key)

    async def _make(self, request: _Request[T], key: CallKey) -> CallResult[T]:
        patient = uses_batch_api(request.backend)
        effort = await self._caller.call(request.role, request.ask, patient)
        line = await _to_the_end(self._keep(request, key, effort))
        if effort.error:
            raise _failure(line) from effort.error
        return CallResult(cast(T, effort.answer), line.call)

    async def _keep(
        self, request: _Request[T], key: CallKey, effort: CallOutcome[T]
    ) -> JournaledCall:
        stored = await self._stored(request.role, effort)
        refused = isinstance(effort.error, UnusableAnswerError)
        return await self._record(JournaledCall(self._row(request, key, effort), stored, refused))

    async def _borrow(self, key: CallKey) -> JournaledCall | None:
        lent = self._lent.find(key)
        if lent is None:
            return None
        free = {"input_tokens": None, "output_tokens": None, "cost_usd": 0.0, "seconds": 0.0}
        own = {"asset": self._asset, "call_id": self._call_id(key), "cached": True, "retries": 0}
        call = lent.call.model_copy(update=free | own)
        return await self._record(JournaledCall(call, lent.answer, lent.refused))

    async def _record(self, line: JournaledCall) -> JournaledCall:
        await self._journal.add(line.record())
        self._finished.add(line)
        return line

    def _row(self, request: _Request[T], key: CallKey, effort: CallOutcome[T]) -> ModelCallRow:
        return ModelCallRow(
            call_id=self._call_id(key),
            asset=self._asset,
            shard=self._shard,
            **key._asdict(),
            backend=request.backend.backend,
            model=request.backend.model,
            input_tokens=effort.usage.input_tokens,
            output_tokens=effort.usage.output_tokens,
            cost_usd=effort.usage.cost_usd,
            images=request.images,
            seconds=effort.seconds,
            cached=False,
            retries=max(effort.tries - 1, 0) + effort.usage.retries,
            error=summarize_error(effort.error) if effort.error else None,
            started_at=effort.started_at,
        )

    def _call_id(self, key: CallKey) -> str:
        return stable_hash(self._asset, self._shard, *key, self._finished.rounds(key))

    async def _stored(self, role: Role, effort: CallOutcome[T]) -> dict[str, Any] | None:
        """The answer as its line holds it; bytes that are no picture become the call's error."""
        if effort.error:
            return None
        if not isinstance(effort.answer, EncodedImage):
            return cast(dict[str, Any], _TEXT_ANSWERS[role].dump_python(effort.answer, mode="json"))
        try:
            return {"image": await asyncio.to_thread(self._images.put, effort.answer)}
        except BadImageError as error:
            effort.error = UnusableAnswerError(str(error))
            return None

    async def _restored(self, line: JournaledCall) -> object:
        answer = line.answer or {}
        if line.call.role == "generator":
            return await self.picture(answer["image"])
        return _TEXT_ANSWERS[line.call.role].validate_python(answer)


class ModelCalls(JournaledCalls):
    """Calls of the four roles."""

    def __init__(
        self,
        home: Home,
        asset: str,
        shard: str,
        roles: Roles,
        limits: Limits | RetryingCaller,
        lender: str | None = None,
    ) -> None:
        super().__init__(home, asset, shard, limits, lender)
        self.roles = roles

    def generator_is_idle(self) -> bool:
        """Whether a picture could be drawn at once without keeping another one waiting."""
        return self._caller.has_room("generator")

    async def plan(self, place: CallSite, request: PlanRequest) -> CallResult[Plan]:
        planner, images = self.roles.planner, _hashes(request.images)
        content = {"text": request.text, "images": images}
        count, ask = len(images), partial(planner.plan, request)
        return await self._call(_Request("planner", planner, place, content, count, ask))

    async def generate(
        self, place: CallSite, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> CallResult[EncodedImage]:
        generator = self.roles.generator
        content = {"prompt": prompt, "images": _hashes(images), "seed": seed}
        count, ask = len(images) + 1, partial(generator.generate, prompt, images, seed)
        return await self._call(_Request("generator", generator, place, content, count, ask))

    async def judge(
        self,
        place: CallSite,
        before: EncodedImage | None,
        after: EncodedImage,
        instruction: str,
        prompt: str,
    ) -> CallResult[Verdict]:
        critic, images = self.roles.critic, _hashes((before, after))
        content = {"images": images, "instruction": instruction, "prompt": prompt}
        count, ask = _count(images), partial(critic.judge, before, after, instruction, prompt)
        return await self._call(_Request("critic", critic, place, content, count, ask))

    async def score(
        self, place: CallSite, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> EnsembleScore:
        """The attempt's grades; each member of an ensemble is a call of its own."""
        images = _hashes((before, after))
        content = {"images": images, "instruction": instruction}

        async def ask(scorer: Scorer) -> Score:
            score = partial(scorer.score, before, after, instruction)
            request = _Request("scorer", scorer, place, content, _count(images), score)
            return (await self._call(request)).answer

        return await graded(self.roles.scorer, ask)


class ExpanderCalls(JournaledCalls):
    """Calls that ask for new terms of vocabulary banks."""

    async def expand(
        self, place: CallSite, expander: Expander, brief: BankBrief
    ) -> CallResult[Proposals]:
        content, ask = asdict(brief), partial(expander.expand, brief)
        return await self._call(_Request("expander", expander, place, content, 0, ask))


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` even when cancelled: an answer that was paid for is kept first."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _hashes(images: Iterable[EncodedImage | None]) -> list[str | None]:
    return [image.sha256 if image else None for image in images]


def _count(hashes: Sequence[str | None]) -> int:
    return sum(image is not None for image in hashes)


def _failure(line: JournaledCall) -> Exception:
    call = line.call
    where = "" if call.step_number is None else f" at step {call.step_number}"
    tries = f" after {call.retries + 1} tries" if call.retries else ""
    message = f"{call.role} {call.backend}/{call.model} failed{where}{tries}: {call.error}"
    return UnusableAnswerError(message) if line.refused else CallFailedError(message)
