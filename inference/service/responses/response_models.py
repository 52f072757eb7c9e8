"""Our own part of the API's answers, as its OpenAPI document describes it."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class AttemptModel(BaseModel):
    """A picture drawn for a step, and the critic's verdict once there is one."""

    iteration: int
    prompt: str
    seed: int
    picture: str = Field(description="sha256")
    seconds: float = Field(description="Of the draw")
    accepted: bool | None
    reasoning: str | None
    refined_prompt: str | None


class StepModel(BaseModel):
    """A step of the plan."""

    number: int
    name: str
    words: str
    prompt: str | None = Field(description="null: words alone")
    begun: bool
    picture: str | None = Field(description="sha256 of the one the story went on with")
    iteration: int | None = Field(description="Which attempt that was")
    accepted: bool | None
    attempts: list[AttemptModel]


class GenerationModel(BaseModel):
    """How a story came about: the field `interleave` of a Response."""

    generation_id: str
    status: Literal[
        "queued",
        "in_progress",
        "complete",
        "exhausted",
        "stopped",
        "refused",
        "failed",
        "cancelled",
        "interrupted",
    ]
    error: str | None
    versions: dict[str, str] = Field(description="planner, generator and critic that made it")
    rules: dict[str, Any]
    wasted_draws: int
    text: str
    given: list[str] = Field(description="sha256 of the pictures given")
    reasoning: str
    steps: list[StepModel]


class ErrorModel(BaseModel):
    """Why a request is refused."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """An answer that is an error."""

    error: ErrorModel


class ModelList(BaseModel):
    """The models that are served."""

    object: Literal["list"]
    data: list[dict[str, Any]]


class Deleted(BaseModel):
    """A response that is forgotten."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class Alive(BaseModel):
    """It runs."""

    status: Literal["alive"]


class Ready(BaseModel):
    """It can tell stories."""

    ready: Literal[True]
    versions: dict[str, str]
