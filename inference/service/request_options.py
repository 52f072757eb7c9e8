"""The field `interleave` of a request: rules of the loop, where they are not the profile's."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from schemas.trajectories import OnExhausted

from ..generation.requests import GenerationOptions
from ..http.errors import bad_request
from ..settings import LoopSettings
from .settings import RequestLimits

MODELS: dict[str, str | None] = {
    "interleave": None,
    "interleave-rl": "rl",
    "interleave-sft": "sft",
}
"""Names of the models that are served -> the critic that each means."""

_SEED = 2**53


class RequestOptions(BaseModel):
    """Rules of one request; those left out are the profile's."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    t_max: int | None = Field(None, ge=1, le=100, description="Attempts allowed per step")
    on_exhausted: OnExhausted | None = Field(
        None, description="After that many: go on with the last picture, the best, or stop"
    )
    conditioning: Literal["last", "all"] | None = Field(
        None, description="What the generator is shown: the last picture, or all"
    )
    seed: int | None = Field(
        None, ge=-_SEED, le=_SEED, description="Equal requests of equal seeds are told alike"
    )
    max_steps: int | None = Field(None, ge=1, le=10_000, description="Longer plans are refused")
    candidates: int | None = Field(
        None, ge=1, le=16, description="Pictures drawn for each prompt of a step"
    )
    draw_ahead: bool | None = Field(
        None, description="Draw the next step while the critic looks at this one"
    )
    critic: Literal["rl", "sft"] | None = Field(
        None, description="How strict a critic; also `model` says it"
    )

    def rules(self, usual: LoopSettings, limits: RequestLimits) -> GenerationOptions:
        """The rules of the request.

        Raises:
            Refusal: it asks for more than the service allows.
        """
        given: dict[str, Any] = self.model_dump(exclude_none=True, exclude={"critic"})
        allowed = {
            "t_max": limits.t_max,
            "candidates": limits.candidates,
            "max_steps": limits.steps,
        }
        for name, most in allowed.items():
            if given.get(name, 0) > most:
                raise bad_request(f"interleave.{name}: at most {most} here", f"interleave.{name}")
        return GenerationOptions(**(usual.model_dump() | given))
