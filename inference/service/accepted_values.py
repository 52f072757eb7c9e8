"""Fields of OpenAI's APIs whose values have no meaning here: which ones a request may still have.

A value that would change the result elsewhere is an error that says what to do instead; nothing
that a user relies on is ignored. Values that change nothing are accepted.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ..http.errors import UNSUPPORTED, RequestModel


@dataclass(frozen=True)
class Only:
    """Annotation of a field that has to have one of a few values, or null.

    Args:
        advice: what to do instead, after "... is not supported here: ".
        accepted: the other values.
    """

    advice: str
    accepted: tuple[Any, ...] = ()

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Any:
        return {"enum": [*self.accepted, None], "description": f"Other values: {self.advice}"}

    def _check(self, value: Any) -> Any:
        if value is not None and value not in self.accepted:
            given = "it is" if isinstance(value, list | dict) else f"{value!r:.60} is"
            message = "{given} not supported here: {advice}"
            raise PydanticCustomError(UNSUPPORTED, message, {"given": given, "advice": self.advice})
        return value


_AGENTS = "planner and critic are set in the profile"
_SCHEMA = "answers are text and pictures, never JSON of a schema; leave it out"
_FUNCTIONS = "functions and other tools are not called; leave them out"

Temperature = Annotated[
    float | None, Only(f"{_AGENTS}; equal seeds give equal results; leave it out", (0, 1))
]
TopP = Annotated[float | None, Only(f"{_AGENTS}; leave it out", (1,))]
Penalty = Annotated[float | None, Only(f"{_AGENTS}; leave it out", (0,))]
LogitBias = Annotated[dict[str, Any] | None, Only(f"{_AGENTS}; leave it out", ({},))]
Logprobs = Annotated[bool | None, Only("there are no log probabilities; leave it out", (False,))]
TopLogprobs = Annotated[int | None, Only("there are no log probabilities; leave it out", (0,))]
Stop = Annotated[
    str | Annotated[list[str], Field(fail_fast=True)] | None,
    Only("texts are not cut; leave it out", ([],)),
]
Choices = Annotated[int | None, Only("one answer per request; send several requests", (1,))]
Effort = Annotated[str | None, Only("planner and critic reason as their prompts say; leave it out")]
Verbosity = Annotated[str | None, Only("say it in words; leave it out", ("medium",))]
_Tools = Annotated[list[dict[str, Any]], Field(fail_fast=True)]
Functions = Annotated[_Tools | None, Only(_FUNCTIONS, ([],))]
FunctionChoice = Annotated[str | dict[str, Any] | None, Only(_FUNCTIONS, ("auto", "none"))]
ToolType = Annotated[str, Only(_FUNCTIONS, ("image_generation",))]
Conversation = Annotated[
    str | dict[str, Any] | None, Only("send previous_response_id, or the earlier messages as input")
]
ToolCalls = Annotated[
    int | None, Only("limit pictures with interleave.max_steps and interleave.t_max")
]
IgnoredObject = Annotated[dict[str, Any] | None, AfterValidator(lambda _: None)]


class TextFormat(BaseModel, extra="ignore", frozen=True, strict=True):
    """The form of texts: plain."""

    type: Annotated[str, Only(_SCHEMA, ("text",))]


class TextSettings(RequestModel):
    """The form of texts: plain, as long as the planner writes them."""

    format: TextFormat | None = None
    verbosity: Verbosity = None


class ReasoningSettings(RequestModel):
    """How the agents reason: nothing of it can be set here."""

    effort: Effort = None
    summary: Annotated[
        str | None, Only("the field interleave.reasoning of the response has the planner's")
    ] = None
    generate_summary: Annotated[str | None, Only("leave it out")] = None
