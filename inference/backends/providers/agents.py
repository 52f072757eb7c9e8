"""Planner, critic, scorer and expander at a provider: a request, a structured answer, one retry."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

from PIL import Image

from warehouse import EncodedImage

from ...agent_prompts import IMAGE, critic_prompt, expander_prompt, planner_turn, scorer_prompt
from ...agent_prompts.parsing import parse_plan, parse_verdict
from ...engine.usage import report_usage
from ...roles import Plan, PlanRequest, Score, UnusableAnswerError, Verdict
from ...vocabulary_protocol import BankRequest, Proposals
from ..checkpoint.pixels import resize_to_pixels
from .chat import ChatTurn, CompletionClient, CompletionRequest, CompletionResult
from .settings import AgentModel
from .structured import (
    AnswerFormatError,
    AnswerType,
    ExpansionAnswer,
    PlanAnswer,
    ScoreAnswer,
    VerdictAnswer,
    parse_answer,
)

# Texts that models read: every change makes them answer differently.
_JSON_INSTRUCTIONS = (
    "A program reads your answer. It is one JSON object, without tags and without a word around "
    "it: what you are asked to think goes into `reasoning`, what you are asked to answer into the "
    "other fields."
)
_SCHEMA_LABEL = "Its JSON schema: "
_CORRECTION = "That cannot be read: {error}. Answer again, with the JSON object alone."


class RemoteAgent:
    """A model of a provider that plays a role."""

    def __init__(self, backend: str, client: CompletionClient[Any], settings: AgentModel) -> None:
        self.backend, self.model = backend, settings.identity
        self._client, self._settings = client, settings
        self.uses_batch_api = settings.batch

    @property
    def _uses_tags(self) -> bool:
        return self._settings.form == "tags"

    async def _complete_text(self, text: str, images: Sequence[EncodedImage]) -> str:
        """The answer in the format of trained agents."""
        return (await self._client.complete(await self._request(text, images))).text

    async def _complete_json(
        self, text: str, images: Sequence[EncodedImage], answer_type: type[AnswerType]
    ) -> AnswerType:
        """The answer as an object; an unreadable one is requested once more."""
        request = await self._request(text, images, answer_type)
        result = await self._client.complete(request)
        try:
            return _parse(result, answer_type)
        except AnswerFormatError as error:
            report_usage(retries=1)
            second = await self._client.complete(_correction_request(request, result, error))
        try:
            return _parse(second, answer_type)
        except AnswerFormatError as error:
            raise UnusableAnswerError(
                f"{self._settings.model} gave no usable answer in two attempts: {error}"
            ) from None

    async def _request(
        self, text: str, images: Sequence[EncodedImage], answer_type: type[AnswerType] | None = None
    ) -> CompletionRequest:
        settings = self._settings
        resized = [await asyncio.to_thread(_resize, image, settings) for image in images]
        schema = answer_type.model_json_schema() if answer_type else None
        parts = _interleave(text, resized, keep_blanks=self._uses_tags)
        return CompletionRequest(
            settings.model,
            (ChatTurn("user", tuple(parts)),),
            system=_system_message(settings, schema),
            schema=schema if settings.form == "schema" else None,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            uses_batch_api=settings.batch,
            options=settings.options,
        )


class RemotePlanner(RemoteAgent):
    """Plans requests; see `Planner` in `inference/roles.py`."""

    async def plan(self, request: PlanRequest) -> Plan:
        text_name = self._settings.prompt("planner_text")
        interleaved_name = self._settings.prompt("planner_interleaved")
        text = planner_turn(request, text_name, interleaved_name).text
        if self._uses_tags:
            return parse_plan(await self._complete_text(text, request.images))
        return (await self._complete_json(text, request.images, PlanAnswer)).plan()


class RemoteCritic(RemoteAgent):
    """Judges attempts; see `Critic` in `inference/roles.py`."""

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        text = critic_prompt(instruction, prompt, self._settings.prompt("critic")).text
        images = (before or EncodedImage.white(after.image.size), after)
        if self._uses_tags:
            return parse_verdict(await self._complete_text(text, images))
        return (await self._complete_json(text, images, VerdictAnswer)).verdict()


class RemoteScorer(RemoteAgent):
    """Grades attempts; see `Scorer` in `inference/roles.py`."""

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        text = scorer_prompt(instruction, self._settings.prompt("scorer")).text
        images = (before or EncodedImage.white(after.image.size), after)
        return (await self._complete_json(text, images, ScoreAnswer)).score()


class RemoteExpander(RemoteAgent):
    """Proposes terms for vocabulary banks; see `Expander` in `inference/vocabulary_protocol.py`."""

    async def expand(self, request: BankRequest) -> Proposals:
        text = expander_prompt(request, self._settings.prompt("expander")).text
        return (await self._complete_json(text, (), ExpansionAnswer)).proposals()


def _system_message(settings: AgentModel, schema: dict[str, Any] | None) -> str | None:
    if schema is None:
        return None
    if settings.form == "schema":
        return _JSON_INSTRUCTIONS
    return f"{_JSON_INSTRUCTIONS} {_SCHEMA_LABEL}{json.dumps(schema)}"


def _interleave(
    text: str, images: Sequence[EncodedImage], keep_blanks: bool
) -> Iterable[str | EncodedImage]:
    """Texts and images in the order of the placeholders, of which there is one per image.

    Args:
        keep_blanks: include texts of white space alone, which some providers reject.
    """
    pieces = text.split(IMAGE)
    for piece, image in zip(pieces, [*images, None], strict=True):
        if piece if keep_blanks else piece.strip():
            yield piece
        if image:
            yield image


def _parse(result: CompletionResult, answer_type: type[AnswerType]) -> AnswerType:
    if not result.is_complete:
        raise AnswerFormatError(f"it was cut off after {result.output_tokens} tokens")
    return parse_answer(result.text, answer_type)


def _correction_request(
    request: CompletionRequest, result: CompletionResult, error: AnswerFormatError
) -> CompletionRequest:
    """The request, its answer, and what was wrong with the answer."""
    if not result.text:
        return request.followed_by()
    correction = ChatTurn("user", (_CORRECTION.format(error=error),))
    return request.followed_by(ChatTurn("model", (result.text,)), correction)


def _resize(encoded: EncodedImage, settings: AgentModel) -> EncodedImage:
    """The image in the size that the settings ask for."""
    if settings.image_pixels is None and settings.longest_side is None:
        return encoded
    image = encoded.image
    if settings.image_pixels:
        image = resize_to_pixels(image, *settings.image_pixels)
    if settings.longest_side:
        image = _limit_side(image, settings.longest_side)
    return encoded if image is encoded.image else EncodedImage.of(image)


def _limit_side(image: Image.Image, longest_side: int) -> Image.Image:
    if max(image.size) <= longest_side:
        return image
    small = image.copy()
    small.thumbnail((longest_side, longest_side), Image.Resampling.LANCZOS)
    return small
