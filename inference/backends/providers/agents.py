"""Planner, critic and scorer at a provider: a question, a structured answer, one correction."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

from PIL import Image

from warehouse import EncodedImage

from ...agent_prompts import IMAGE, critic_prompt, planner_turn, scorer_prompt
from ...agent_prompts.parsing import parse_plan, parse_verdict
from ...engine.usage import report_usage
from ...roles import Plan, PlanRequest, Score, UnusableAnswerError, Verdict
from ..checkpoint.pixels import resize_to_pixels
from .chat import Chat, ChatTurn, CompletionRequest, CompletionResult
from .settings import AgentModel
from .structured import AnswerFormatError, AnswerKind, PlanAnswer, ScoreAnswer, VerdictAnswer, read

_STRUCTURED = (
    "A program reads your answer. It is one JSON object, without tags and without a word around "
    "it: what you are asked to think goes into `reasoning`, what you are asked to answer into the "
    "other fields."
)
_SCHEMA = "Its JSON schema: "
_AGAIN = "That cannot be read: {fault}. Answer again, with the JSON object alone."


class RemoteAgent:
    """A model of a provider that plays a role."""

    def __init__(self, backend: str, chat: Chat[Any], settings: AgentModel) -> None:
        self.backend, self.model = backend, settings.identity
        self._chat, self._settings = chat, settings
        self.patient = settings.batch

    @property
    def _in_tags(self) -> bool:
        return self._settings.form == "tags"

    async def _write(self, text: str, pictures: Sequence[EncodedImage]) -> str:
        """The answer as a trained agent writes it."""
        reply = await self._chat.ask(await self._question(text, pictures))
        return reply.text

    async def _fill(
        self, text: str, pictures: Sequence[EncodedImage], kind: type[AnswerKind]
    ) -> AnswerKind:
        """The answer as an object; one that cannot be read is asked for once more."""
        question = await self._question(text, pictures, kind)
        reply = await self._chat.ask(question)
        try:
            return _read(reply, kind)
        except AnswerFormatError as fault:
            report_usage(retries=1)
            again = await self._chat.ask(_corrected(question, reply, fault))
        try:
            return _read(again, kind)
        except AnswerFormatError as fault:
            model = self._settings.model
            raise UnusableAnswerError(
                f"{model} gave no usable answer, asked twice: {fault}"
            ) from None

    async def _question(
        self, text: str, pictures: Sequence[EncodedImage], kind: type[AnswerKind] | None = None
    ) -> CompletionRequest:
        settings = self._settings
        sent = [await asyncio.to_thread(_as_sent, picture, settings) for picture in pictures]
        schema = kind.model_json_schema() if kind else None
        return CompletionRequest(
            settings.model,
            (ChatTurn("user", tuple(_interleaved(text, sent, blanks=self._in_tags))),),
            system=_system(settings, schema),
            schema=schema if settings.form == "schema" else None,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            patient=settings.batch,
            options=settings.options,
        )


class RemotePlanner(RemoteAgent):
    """Plans requests; see `Planner` in `inference/roles.py`."""

    async def plan(self, request: PlanRequest) -> Plan:
        text_name = self._settings.prompt("planner_text")
        interleaved_name = self._settings.prompt("planner_interleaved")
        text = planner_turn(request, text_name, interleaved_name).text
        if self._in_tags:
            return parse_plan(await self._write(text, request.images))
        return (await self._fill(text, request.images, PlanAnswer)).plan()


class RemoteCritic(RemoteAgent):
    """Judges attempts; see `Critic` in `inference/roles.py`."""

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        text = critic_prompt(instruction, prompt, self._settings.prompt("critic")).text
        pictures = (before or EncodedImage.white(after.image.size), after)
        if self._in_tags:
            return parse_verdict(await self._write(text, pictures))
        return (await self._fill(text, pictures, VerdictAnswer)).verdict()


class RemoteScorer(RemoteAgent):
    """Grades attempts; see `Scorer` in `inference/roles.py`."""

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        text = scorer_prompt(instruction, self._settings.prompt("scorer")).text
        pictures = (before or EncodedImage.white(after.image.size), after)
        return (await self._fill(text, pictures, ScoreAnswer)).score()


def _system(settings: AgentModel, schema: dict[str, Any] | None) -> str | None:
    if schema is None:
        return None
    if settings.form == "schema":
        return _STRUCTURED
    return f"{_STRUCTURED} {_SCHEMA}{json.dumps(schema)}"


def _interleaved(
    text: str, pictures: Sequence[EncodedImage], blanks: bool
) -> Iterable[str | EncodedImage]:
    """Texts and pictures in the order of the placeholders, of which there is one a picture.

    Args:
        blanks: texts of white space alone count, too; some providers refuse them.
    """
    pieces = text.split(IMAGE)
    for piece, picture in zip(pieces, [*pictures, None], strict=True):
        if piece if blanks else piece.strip():
            yield piece
        if picture:
            yield picture


def _read(reply: CompletionResult, kind: type[AnswerKind]) -> AnswerKind:
    if not reply.whole:
        raise AnswerFormatError(f"it was cut off after {reply.output_tokens} tokens")
    return read(reply.text, kind)


def _corrected(
    question: CompletionRequest, reply: CompletionResult, fault: AnswerFormatError
) -> CompletionRequest:
    """The question, what was answered, and what was wrong with that."""
    if not reply.text:
        return question.followed_by()
    correction = ChatTurn("user", (_AGAIN.format(fault=fault),))
    return question.followed_by(ChatTurn("model", (reply.text,)), correction)


def _as_sent(picture: EncodedImage, settings: AgentModel) -> EncodedImage:
    """The picture in the size that the settings ask for."""
    if settings.image_pixels is None and settings.longest_side is None:
        return picture
    image = picture.image
    if settings.image_pixels:
        image = resize_to_pixels(image, *settings.image_pixels)
    if settings.longest_side:
        image = _reduced(image, settings.longest_side)
    return picture if image is picture.image else EncodedImage.of(image)


def _reduced(image: Image.Image, longest_side: int) -> Image.Image:
    if max(image.size) <= longest_side:
        return image
    small = image.copy()
    small.thumbnail((longest_side, longest_side), Image.Resampling.LANCZOS)
    return small
