"""Rows of the forms that LLaMA-Factory and the authors' GRPO read: `planner_sft.json`,
`critic_sft.json`, `critic_rl.jsonl`. Texts stay as they are, so that a model is trained on what its
own prompts and answers look like."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from inference.agent_prompts.formatting import parse_plan, read_verdict
from inference.agent_prompts.templates import IMAGE
from inference.roles import UnusableAnswerError
from schemas.curation import ChatMessageRow, Evaluation, ImportKind
from schemas.errors import first_problem
from warehouse import Home

from .source import WHITE, ImageFinder, UnusableRowError

_PLACEHOLDER = re.compile(re.escape(IMAGE), re.IGNORECASE)
_VERDICT_NAMES = {
    "previous_step_success": "success",
    "semantic_score": "semantics",
    "quality_score": "quality",
}
_SIDES = {"human": "user", "gpt": "assistant"}  # of older sharegpt files


class _Message(BaseModel):
    role: str
    content: str

    @classmethod
    def of(cls, message: Any) -> "_Message":
        if isinstance(message, dict) and "from" in message:
            side = message["from"]
            message = {"role": _SIDES.get(side, side), "content": message.get("value")}
        return cls.model_validate(message)


class _Truth(BaseModel):
    """Scores may be written as texts."""

    success: bool
    semantics: float = Field(ge=0, le=10)
    quality: float = Field(ge=0, le=10)


class _RlRow(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    origin_prompt: str = Field(min_length=1)
    rewritten_prompt: str | None = None
    origin_image_path: Any = None
    edited_image_path: Any
    evaluation: dict[str, Any]


@dataclass(frozen=True)
class RowReader:
    """Checks rows of one kind, and stores their images."""

    kind: ImportKind
    home: Home
    images: ImageFinder

    def read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Columns of `ImportedRow`: texts, images and ground truth.

        Raises:
            UnusableRowError: why it cannot be trained on.
        """
        try:
            return self._rl(row) if self.kind == "critic_rl" else self._sft(row)
        except ValidationError as error:
            raise UnusableRowError(first_problem(error)) from error
        except UnusableAnswerError as error:
            raise UnusableRowError(f"the answer cannot be read: {error}") from error

    def _sft(self, row: Mapping[str, Any]) -> dict[str, Any]:
        given = row.get("messages") or row.get("conversations") or []
        messages = [_Message.of(message) for message in given]
        if [message.role for message in messages] != ["user", "assistant"]:
            raise UnusableRowError("its messages are not one user turn and one assistant turn")
        question, answer = messages
        names = row.get("images") or []
        if (count := len(_PLACEHOLDER.findall(question.content))) != len(names):
            raise UnusableRowError(f"{count} placeholders {IMAGE}, and {len(names)} images")
        if self.kind == "critic_sft" and count != 2:
            raise UnusableRowError(f"a critic compares two images, and it has {count}")
        parse: Callable[[str], Any] = parse_plan if self.kind == "planner_sft" else read_verdict
        parse(answer.content)
        turns = [ChatMessageRow(**message.model_dump()) for message in messages]
        return self._columns(messages=turns, images=[self.images.sha256(name) for name in names])

    def _rl(self, row: Mapping[str, Any]) -> dict[str, Any]:
        read = _RlRow.model_validate(row)
        truth = {_VERDICT_NAMES.get(name, name): value for name, value in read.evaluation.items()}
        evaluation = Evaluation(**_Truth.model_validate(truth).model_dump())
        after = self.images.sha256(read.edited_image_path)
        return self._columns(
            images=[self._before(read.origin_image_path, after), after],
            origin_prompt=read.origin_prompt,
            rewritten_prompt=read.rewritten_prompt or "",
            evaluation=evaluation,
        )

    def _before(self, image: Any, after: str) -> str:
        if image is None or (isinstance(image, str) and WHITE in image):
            return self.images.white(after, self.home.images.get)
        return self.images.sha256(image)

    def _columns(self, **columns: Any) -> dict[str, Any]:
        empty: dict[str, Any] = {"messages": [], "origin_prompt": None, "rewritten_prompt": None}
        return {**empty, "evaluation": None, **columns}
