"""Roles played by models at a provider; see `inference/roles.py`."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

from PIL import Image

from schemas import BadImageError
from schemas.trajectories import Role, ScoreCalls
from warehouse import EncodedImage

from ...agent_prompts.formatting import parse_plan, read_verdict
from ...agent_prompts.templates import IMAGE, critic_prompt, escape_tags, planner_turn, render
from ...calls.retry import pause_timeout, report_usage
from ...calls.scoring import TwoCallScorer
from ...questions import AnswerFormatError, Question, StructuredAnswer, TextAnswer, TextQuestion
from ...roles import (
    Plan,
    PlanRequest,
    QualityGrades,
    RetryableError,
    Score,
    Scorer,
    SemanticsGrades,
    UnusableAnswerError,
    Verdict,
)
from ..checkpoint.encoding import resize_to_pixels
from ..diffusers.registry import load_registry
from .chat import ChatTurn, CompletionClient, CompletionRequest
from .settings import AgentModel, BenchmarkJudgeModel, ChatModel, RemoteGeneratorModel, ScorerModel
from .structured import (
    CompletionResult,
    PlanAnswer,
    QualityAnswer,
    ScoreAnswer,
    SemanticsAnswer,
    VerdictAnswer,
    parse_answer,
)

T = TypeVar("T")

_SizeLimits = tuple[tuple[int, int] | None, int | None]  # least and most pixels, longest side
_REDUCED = WeakKeyDictionary[EncodedImage, dict[_SizeLimits, EncodedImage | None]]()

# Texts that models read: every change makes them answer differently.
_JSON_INSTRUCTIONS = (
    "A program reads your answer. It is one JSON object, without tags and without a word around "
    "it: what you are asked to think goes into `reasoning`, what you are asked to answer into the "
    "other fields."
)
_CORRECTION = "That cannot be read: {error}. Answer again, with the JSON object alone."
_UNREADABLE = (
    "No answer of the form that was asked for can be read in that. Answer again, and end exactly "
    "as the instructions say."
)


class RemoteAgent:
    def __init__(
        self,
        backend: str,
        client: CompletionClient,
        settings: AgentModel,
        identity: str | None = None,
    ) -> None:
        self.backend, self.model = backend, identity or settings.identity
        self._client, self._settings = client, settings
        self.uses_batch_api = settings.batch

    async def _ask(
        self,
        text: str,
        images: Sequence[EncodedImage],
        answer_type: type[StructuredAnswer],
        parse_tags: Callable[[str], Any] | None = None,
    ) -> Any:
        """The value that the model answers, as an object or in the format of trained agents.

        An unreadable answer is requested once more.
        """
        if self._settings.form == "tags" and parse_tags:
            return await self._ask_for_tags(await self._request(text, images), parse_tags)
        request = await self._request(text, images, _schema_of(answer_type))
        result = await self._client.complete(request)
        try:
            return parse_answer(result, answer_type).value()
        except AnswerFormatError as error:
            report_usage(retries=1)
            second = await self._client.complete(_correction_request(request, result, error))
        try:
            return parse_answer(second, answer_type).value()
        except AnswerFormatError as error:
            raise UnusableAnswerError(
                f"{self._settings.model} gave no usable answer in two attempts: {error}"
            ) from None

    async def _ask_for_tags(self, request: CompletionRequest, parse: Callable[[str], Any]) -> Any:
        """The second time the model chooses its own temperature: at 0 it would answer the same.

        Its turns stay as they are: a trained agent knows no corrections.
        """
        try:
            return parse((await self._client.complete(request)).text)
        except UnusableAnswerError:
            report_usage(retries=1)
            again = replace(request, temperature=None, uses_batch_api=False)
            return parse((await self._client.complete(again)).text)

    async def _request(
        self, text: str, images: Sequence[EncodedImage], schema: dict[str, Any] | None = None
    ) -> CompletionRequest:
        is_tagged = self._settings.form == "tags"
        request = await _chat_request(text, images, self._settings, keep_blanks=is_tagged)
        return replace(request, system=_JSON_INSTRUCTIONS, schema=schema) if schema else request


class RemotePlanner(RemoteAgent):
    async def plan(self, request: PlanRequest) -> Plan:
        names = map(self._settings.prompt, ("planner_text", "planner_interleaved"))
        text = planner_turn(request, *names).text
        return await self._ask(text, request.images, PlanAnswer, parse_plan)


class RemoteCritic(RemoteAgent):
    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        repeats = self._settings.repeats_first_prompt
        rewritten = prompt or (instruction if repeats else "")
        text = critic_prompt(instruction, rewritten, self._settings.prompt("critic")).text
        images = before_and_after(before, after)
        try:
            return await self._ask(text, images, VerdictAnswer, read_verdict)
        except UnusableAnswerError as error:
            if self._settings.form != "tags":
                raise
            return Verdict(False, "", str(error))


class RemoteScorer(RemoteAgent):
    """All four grades in one call."""

    score_calls: ClassVar[ScoreCalls] = "one"

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        text = render(self._settings.prompt("scorer"), instruction=escape_tags(instruction)).text
        return await self._ask(text, before_and_after(before, after), ScoreAnswer)


class RemoteSemanticsScorer(RemoteAgent):
    async def score_semantics(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> SemanticsGrades:
        name = self._settings.prompt("scorer_semantics")
        text = render(name, instruction=escape_tags(instruction)).text
        return await self._ask(text, before_and_after(before, after), SemanticsAnswer)


class RemoteQualityScorer(RemoteAgent):
    async def score_quality(self, after: EncodedImage) -> QualityGrades:
        text = render(self._settings.prompt("scorer_quality")).text
        return await self._ask(text, (after,), QualityAnswer)


def remote_scorer(backend: str, client: CompletionClient, settings: ScorerModel) -> Scorer:
    """The scorer of a provider, in the form that `settings.calls` names."""
    if settings.calls == "one":
        return RemoteScorer(backend, client, settings)
    semantics = RemoteSemanticsScorer(backend, client, settings, settings.identity_of("semantics"))
    quality = RemoteQualityScorer(backend, client, settings, settings.identity_of("quality"))
    return TwoCallScorer(backend, settings.identity, semantics, quality)


class RemoteRespondent(RemoteAgent):
    """Answers questions in JSON; see `Respondent` in `inference/questions.py`."""

    async def ask(self, question: Question[T]) -> T:
        assert question.form is not None
        text = question.text(self._settings.prompt)
        answer: T = await self._ask(text, question.images, question.form)
        if problem := question.problem(answer):
            raise UnusableAnswerError(f"{self._settings.model} gave {problem}")
        return answer


class RemoteTextRespondent:
    """Answers questions in words."""

    def __init__(
        self, backend: str, client: CompletionClient, settings: BenchmarkJudgeModel
    ) -> None:
        self.backend, self.model = backend, settings.identity
        self._client, self._settings = client, settings
        self.uses_batch_api = settings.batch

    async def ask(self, question: TextQuestion) -> TextAnswer:
        text, unreadable = question.text(str), question.unreadable
        request = await _chat_request(text, question.images, self._settings, keep_blanks=False)
        if unreadable is not None:
            said = [ChatTurn("model", (unreadable,))] if unreadable.strip() else []
            request = request.followed_by(*said, ChatTurn("user", (_UNREADABLE,)))
        return TextAnswer((await self._client.complete(request)).text)


async def _chat_request(
    text: str, images: Sequence[EncodedImage], settings: ChatModel, keep_blanks: bool
) -> CompletionRequest:
    resized = await _reduced(images, settings.pixels_of(len(images)), settings.longest_side)
    return CompletionRequest(
        settings.model,
        (ChatTurn("user", tuple(_interleave(text, resized, keep_blanks))),),
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        uses_batch_api=settings.batch,
        options=settings.options,
    )


@cache
def _schema_of(answer_type: type[StructuredAnswer]) -> dict[str, Any]:
    """It takes milliseconds to make."""
    return answer_type.model_json_schema()


def before_and_after(
    before: EncodedImage | None, after: EncodedImage
) -> tuple[EncodedImage, EncodedImage]:
    """Both images; a white one stands for none before."""
    return before or EncodedImage.white(after.image.size), after


class RemoteGenerator:
    """Every given image is a reference, the last one is edited.

    Models that are not in the registry get all images as references. Hosted models promise no
    determinism: the seed is sent where the API takes one; another is simply another attempt.
    """

    def __init__(
        self, backend: str, client: CompletionClient, settings: RemoteGeneratorModel
    ) -> None:
        self.backend, self.model = backend, settings.identity
        self._client, self._settings, self._size = client, settings, settings.size

    @property
    def max_reference_images(self) -> int | None:
        registered = load_registry().of_model(self._settings.model)
        return registered.max_reference_images if registered else None

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        sent = await _reduced(images, None, self._settings.longest_side)
        result = await self._client.complete(self._request(prompt, sent, seed))
        problem = await asyncio.to_thread(self._problem, result)
        if problem:
            raise RetryableError(f"{self._settings.model} {problem}")
        return result.images[-1]

    def _request(self, prompt: str, images: Sequence[EncodedImage], seed: int) -> CompletionRequest:
        return CompletionRequest(
            self._settings.model,
            (ChatTurn("user", (*images, prompt)),),
            max_tokens=self._settings.max_tokens,
            seed=seed,
            returns_image=True,
            options=self._settings.options,
        )

    def _problem(self, result: CompletionResult) -> str | None:
        """What is wrong with an answer: no image, a broken one, one of another size."""
        if not result.images:
            return f"answered without an image: {result.text[:80]}"
        try:
            size = "{}x{}".format(*result.images[-1].image.size)
        except BadImageError as error:
            return f"answered with a broken image: {error}"
        if self._size not in (None, size):
            return f"generated {size} instead of {self._size}"
        return None


def _interleave(
    text: str, images: Sequence[EncodedImage], keep_blanks: bool
) -> Iterable[str | EncodedImage]:
    """Texts and images in the order of the placeholders, of which there is one per image.

    Some providers reject texts of white space alone, which `keep_blanks` includes.
    """
    pieces = text.split(IMAGE)
    for piece, image in zip(pieces, [*images, None], strict=True):
        if piece if keep_blanks else piece.strip():
            yield piece
        if image:
            yield image


def _correction_request(
    request: CompletionRequest, result: CompletionResult, error: AnswerFormatError
) -> CompletionRequest:
    """The request, its answer, and what was wrong with the answer."""
    correction = ChatTurn("user", (_CORRECTION.format(error=error),))
    turns = (ChatTurn("model", (result.text,)), correction) if result.text else ()
    return request.followed_by(*turns)


async def _reduced(
    images: Sequence[EncodedImage], pixels: tuple[int, int] | None, longest_side: int | None
) -> Sequence[EncodedImage]:
    """Images within limits, made in a thread while the slot is free for another call."""
    if pixels is None and longest_side is None:
        return images
    async with pause_timeout():
        return [await asyncio.to_thread(_reduce, image, pixels, longest_side) for image in images]


def _reduce(
    encoded: EncodedImage, pixels: tuple[int, int] | None, longest_side: int | None
) -> EncodedImage:
    """The image within limits, made once while it is in use: an image is sent several times, as the
    one that is judged and as the one before the next."""
    made, limits = _REDUCED.setdefault(encoded, {}), (pixels, longest_side)
    if limits not in made:
        made[limits] = _within(encoded, pixels, longest_side)
    return made[limits] or encoded


def _within(
    encoded: EncodedImage, pixels: tuple[int, int] | None, longest_side: int | None
) -> EncodedImage | None:
    """Within least and most pixels and the longest side; None: the image already is."""
    image = encoded.image
    if pixels:
        image = resize_to_pixels(image, *pixels)
    if longest_side and max(image.size) > longest_side:
        image = image.copy()
        image.thumbnail((longest_side, longest_side), Image.Resampling.LANCZOS)
    return None if image is encoded.image else EncodedImage.of(image)


AGENTS: dict[Role, Any] = {
    "planner": RemotePlanner,
    "generator": RemoteGenerator,
    "critic": RemoteCritic,
    "scorer": remote_scorer,
    "expander": RemoteRespondent,
    "rubric_writer": RemoteRespondent,
    "judge": RemoteRespondent,
    "benchmark_judge": RemoteTextRespondent,
}
