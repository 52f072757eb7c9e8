"""All model calls go through here: looked up in the shard's journal, else made and journaled.

A unit of work is one finished model call. It is journaled under its prompt, step, iteration, role
and a hash of the request, so that after a crash the same code runs again, finds the finished calls
and makes only the others. An image is stored before the line that names it, and a line is one
write, so every line is true whenever a process is killed.

Every call becomes a `model_calls` row, failed ones and those of earlier settings included: they
were paid for. A priced request also has a line before it is sent, which is its row if the process
is killed. A replay adds none, so a rebuilt table is the same. `cached` is true only where one asset
was answered from another's journal; such a row costs nothing.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast
from weakref import WeakValueDictionary

from pydantic import TypeAdapter

from schemas import BadImageError, FoundryError
from schemas.trajectories import ModelCallRow, Role
from warehouse import EncodedImage, Home

from ..generators import drawing_model
from ..questions import Question, Respondent, image_hashes
from ..roles import (
    Backend,
    Plan,
    PlanRequest,
    PlanSampler,
    Roles,
    UnusableAnswerError,
    Verdict,
    uses_batch_api,
)
from ..settings import Limits
from .call_index import CallIndex, CallKey, JournaledCall, call_id
from .forecast import ItemUsage
from .hashing import stable_hash
from .progress import Progress
from .retry import CallFailedError, CallOutcome, RetryingCaller, summarize_error
from .scoring import EnsembleScore, ScoreCall, ScoredAttempt, score_with
from .worker_pool import WorkerPool, finish_when_cancelled

Item = TypeVar("Item")
R = TypeVar("R")
T = TypeVar("T")

_adapter = cache(TypeAdapter[Any])  # of a type of answers
_CUT_OFF = "the process was stopped before its answer arrived"


class CallSite(NamedTuple):
    """Prompt, step and iteration that a call is made for."""

    prompt_id: str
    step_number: int | None = None
    iteration: int | None = None


class CallResult(NamedTuple, Generic[T]):
    """An answer, and the ledger row of the call that gave it, in this run or an earlier one."""

    answer: T
    call: ModelCallRow


@dataclass(frozen=True)
class _Request(Generic[T]):
    """A call to be made by `send`. `content`: all that the answer depends on, as JSON."""

    role: Role
    backend: Backend
    site: CallSite
    content: dict[str, Any]
    answer_type: type
    send: Callable[[], Awaitable[T]]

    @cached_property
    def key(self) -> CallKey:
        digest = request_hash(self.role, self.backend, self.content)
        return CallKey(*self.site, self.role, digest)


def request_hash(role: Role, backend: Backend, content: dict[str, Any]) -> str:
    """Hash of role, backend, model and content: texts, image hashes, seed."""
    return stable_hash(role, backend.backend, backend.model, content)


class JournaledCalls(Generic[R]):
    """Calls for one shard of one asset; a context manager that owns its journal.

    Every call raises `UnusableAnswerError` when its answer is final and unusable, and
    `CallFailedError` when no try succeeded; errors of lake and journal (a full disk) pass through.

    Args:
        limits: or a caller that several journals share.
    """

    def __init__(
        self, home: Home, asset: str, shard: str, roles: R, limits: Limits | RetryingCaller
    ) -> None:
        self.roles = roles
        self._asset, self._shard = asset, shard
        self._home, self._images = home, home.images
        self.caller = limits if isinstance(limits, RetryingCaller) else RetryingCaller(limits)
        self._journal = home.journal(asset, shard)
        self._index = CallIndex()
        self._others: dict[CallKey, JournaledCall] = {}
        self._locks: WeakValueDictionary[CallKey, asyncio.Lock] = WeakValueDictionary()
        self._usage: defaultdict[str, ItemUsage] = defaultdict(ItemUsage)

    def __enter__(self) -> Self:
        """Become the journal's only writer, then read its finished calls."""
        self._journal.__enter__()
        try:
            self._index = CallIndex.read(self._journal)
        except BaseException:
            self._journal.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._journal.close()

    def reuse(self, asset: str, shard: str, prompts: Collection[str] | None = None) -> None:
        """Copy what another journal has, instead of making (and paying) it again.

        Args:
            prompts: whose calls; None: all.
        """
        self._others.update(CallIndex.read(self._home.journal(asset, shard), prompts).final)

    def with_roles(self, roles: R) -> Self:
        """The same journal, for calls of other backends."""
        other = copy(self)
        other.roles = roles
        return other

    async def map(
        self,
        work: Callable[[Item], Awaitable[T]],
        items: Sequence[Item],
        workers: int,
        progress: Progress,
    ) -> list[T]:
        """Results of `work`, which makes calls, in the order of `items`; `workers` at once.

        Raises FoundryError where a model gave no answer; finished calls are journaled.
        """
        pool = WorkerPool(self._shard, max(workers, 1), 1.0, progress)
        try:
            results, _ = await pool.map(work, items)
        except CallFailedError as error:
            raise FoundryError(
                f"{self._asset} of {self._shard}: {error}; finished calls are stored, run again"
            ) from error
        return results

    async def image(self, sha256: str) -> EncodedImage:
        """A stored image. Raises `BadImageError` when it is missing or damaged."""
        return await asyncio.to_thread(self._images.get, sha256)

    def ledger(self) -> list[ModelCallRow]:
        """A row per call ever made for this shard, in the order in which they finished."""
        return self._index.ledger()

    def usage(self, prompt_id: str) -> ItemUsage:
        """Of the calls for a prompt since this object was made."""
        return self._usage[prompt_id]

    async def _call(self, request: _Request[T]) -> CallResult[T]:
        lock = self._locks.setdefault(request.key, asyncio.Lock())
        async with lock:  # equal calls at the same time are made once
            line = self._index.final.get(request.key) or await self._copy(request.key)
            if line is None:
                return await self._make(request)
            self._usage[request.site.prompt_id].replayed = True
            if line.answer is None:
                raise _error_of(line)
            try:
                return CallResult(cast(T, await self._load_answer(request, line)), line.call)
            except BadImageError:  # the image was deleted since: make the call again
                return await self._make(request)

    async def _make(self, request: _Request[T]) -> CallResult[T]:
        outcome: CallOutcome[T] = CallOutcome()
        outcome.before_request = partial(self._note_request, request, outcome)
        unlimited = uses_batch_api(request.backend)
        try:
            await self.caller.call(
                request.role, request.answer_type, request.send, unlimited, outcome
            )
        except asyncio.CancelledError:
            if outcome.error:
                await finish_when_cancelled(self._store(request, outcome))
            raise
        line = await finish_when_cancelled(self._store(request, outcome))
        if outcome.error:
            raise _error_of(line) from outcome.error
        return CallResult(cast(T, outcome.answer), line.call)

    async def _note_request(
        self, request: _Request[T], outcome: CallOutcome[T], likely_usd: float, resumable: bool
    ) -> None:
        """Journal a request before it is sent: what a kill leaves of it in the ledger."""
        usd = (outcome.cost_usd or 0) + likely_usd
        estimated = (outcome.estimated_usd or 0) + likely_usd
        row = self._row(request, outcome).model_copy(
            update={"cost_usd": usd, "estimated_usd": estimated, "error": _CUT_OFF}
        )
        line = JournaledCall(
            call=row, answer=None, refused=False, finished=False, resumable=resumable
        )
        await self._journal.add(line.model_dump(mode="json"))

    async def _store(self, request: _Request[T], outcome: CallOutcome[T]) -> JournaledCall:
        answer = await self._store_answer(request, outcome)
        refused = isinstance(outcome.error, UnusableAnswerError)
        call = self._row(request, outcome)
        self._usage[request.site.prompt_id].add(call.cost_usd, call.error)
        return await self._append(JournaledCall(call=call, answer=answer, refused=refused))

    async def _copy(self, key: CallKey) -> JournaledCall | None:
        """The line of another journal, from now on of this one, too."""
        source = self._others.get(key)
        if source is None:
            return None
        free = {"input_tokens": None, "output_tokens": None, "cost_usd": 0.0, "seconds": 0.0}
        free["estimated_usd"] = None
        own = {"asset": self._asset, "call_id": self._call_id(key), "cached": True, "retries": 0}
        call = source.call.model_copy(update=free | own)
        return await self._append(source.model_copy(update={"call": call}))

    async def _append(self, line: JournaledCall) -> JournaledCall:
        await self._journal.add(line.model_dump(mode="json"))
        self._index.add(line)
        return line

    def _row(self, request: _Request[T], outcome: CallOutcome[T]) -> ModelCallRow:
        sent = sum(image is not None for image in request.content.get("images", ()))
        return ModelCallRow(
            call_id=self._call_id(request.key),
            asset=self._asset,
            shard=self._shard,
            **request.key._asdict(),
            backend=request.backend.backend,
            model=request.backend.model,
            input_tokens=outcome.input_tokens,
            output_tokens=outcome.output_tokens,
            cost_usd=outcome.cost_usd,
            estimated_usd=outcome.estimated_usd,
            images=sent + (request.role == "generator"),
            seconds=outcome.seconds,
            cached=False,
            retries=max(outcome.tries - 1, 0) + outcome.retries,
            error=summarize_error(outcome.error) if outcome.error else None,
            started_at=outcome.started_at,
        )

    def _call_id(self, key: CallKey) -> str:
        return call_id(self._asset, self._shard, key, self._index.counts[key])

    async def _store_answer(
        self, request: _Request[T], outcome: CallOutcome[T]
    ) -> dict[str, Any] | None:
        """The answer as JSON, its image stored; an image that cannot be decoded is an error."""
        if outcome.error:
            return None
        if not isinstance(outcome.answer, EncodedImage):
            adapter = _adapter(request.answer_type)
            return cast(dict[str, Any], adapter.dump_python(outcome.answer, mode="json"))
        try:
            return {"image": await asyncio.to_thread(self._images.put, outcome.answer)}
        except BadImageError as error:
            outcome.error = UnusableAnswerError(str(error))
            return None

    async def _load_answer(self, request: _Request[T], line: JournaledCall) -> object:
        answer = line.answer or {}
        if request.answer_type is EncodedImage:
            return await self.image(answer["image"])
        return _adapter(request.answer_type).validate_python(answer)


class ModelCalls(JournaledCalls[Roles]):
    """Calls of the four roles."""

    async def plan(self, site: CallSite, request: PlanRequest) -> CallResult[Plan]:
        planner = self.roles.planner
        content = {"text": request.text, "images": image_hashes(request.images)}
        send = partial(planner.plan, request)
        return await self._call(_Request("planner", planner, site, content, Plan, send))

    async def generate(
        self, site: CallSite, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> CallResult[EncodedImage]:
        generator = drawing_model(self.roles.generator, images)
        content = {"prompt": prompt, "images": image_hashes(images), "seed": seed}
        send = partial(generator.generate, prompt, images, seed)
        return await self._call(_Request("generator", generator, site, content, EncodedImage, send))

    async def judge(
        self,
        site: CallSite,
        before: EncodedImage | None,
        after: EncodedImage,
        instruction: str,
        prompt: str,
    ) -> CallResult[Verdict]:
        critic, images = self.roles.critic, image_hashes((before, after))
        content = {"images": images, "instruction": instruction, "prompt": prompt}
        send = partial(critic.judge, before, after, instruction, prompt)
        return await self._call(_Request("critic", critic, site, content, Verdict, send))

    async def score(
        self, site: CallSite, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> EnsembleScore:
        """The attempt's score; each call of it, and of an ensemble's members, has its own line."""

        async def make(call: ScoreCall) -> Any:
            content: dict[str, Any] = {"images": image_hashes(call.images)}
            if call.instruction is not None:
                content["instruction"] = call.instruction
            request = _Request("scorer", call.backend, site, content, call.answer_type, call.send)
            return (await self._call(request)).answer

        attempt = ScoredAttempt(before, after, instruction)
        return await score_with(self.roles.scorer, attempt, make)


class PlanSamples(JournaledCalls[PlanSampler]):
    """Calls that sample plans."""

    async def sample(self, site: CallSite, request: PlanRequest, draw: int) -> CallResult[Plan]:
        content = {"text": request.text, "images": image_hashes(request.images), "draw": draw}
        send = partial(self.roles.plan, request, draw)
        return await self._call(_Request("planner", self.roles, site, content, Plan, send))


class QuestionCalls(JournaledCalls[Respondent]):
    """Questions to one model."""

    async def ask(self, site: CallSite, question: Question[T]) -> CallResult[T]:
        send = partial(self.roles.ask, question)
        kind = question.answer_type
        return await self._call(
            _Request(question.role, self.roles, site, question.content, kind, send)
        )


@dataclass(frozen=True)
class Reply(Generic[T]):
    """The answer to a question; `failure`: why there is none."""

    answer: T | None
    failure: str | None = None


async def ask_all(
    home: Home,
    asset: str,
    shard: str,
    model: Respondent,
    questions: Mapping[str, Question[T]],
    limits: Limits,
    progress: Progress,
    tolerated: tuple[type[Exception], ...] = (UnusableAnswerError,),
) -> tuple[dict[str, Reply[T]], list[ModelCallRow]]:
    """Ask a question for each of some ids; the calls ever made for them are the second part.

    Args:
        tolerated: errors that leave one question without an answer.

    Raises:
        FoundryError: the model gave no answer otherwise; finished calls are journaled.
    """

    async def ask(name: str) -> Reply[T]:
        try:
            return Reply((await calls.ask(CallSite(name), questions[name])).answer)
        except tolerated as error:
            return Reply(None, summarize_error(error))

    with QuestionCalls(home, asset, shard, model, limits) as calls:
        workers = len(questions) if uses_batch_api(model) else limits.agents
        replies = await calls.map(ask, list(questions), workers, progress)
        return dict(zip(questions, replies, strict=True)), calls.ledger()


def _error_of(line: JournaledCall) -> Exception:
    call = line.call
    step = "" if call.step_number is None else f" at step {call.step_number}"
    tries = f" after {call.retries + 1} tries" if call.retries else ""
    message = f"{call.role} {call.backend}/{call.model} failed{step}{tries}: {call.error}"
    return UnusableAnswerError(message) if line.refused else CallFailedError(message)
