"""What a killed process leaves of a request: what it asked for, and the calls in its journal."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from schemas.generations import GENERATIONS, Door, GenerationRow
from schemas.trajectories import LOOP_ROLES, MODEL_CALLS, ModelCallRow, Role

from ..engine.hashing import stable_hash
from .requests import GenerationOptions, prompt_id_of
from .row_recorder import Rows, total_cost


@dataclass(frozen=True)
class InterruptedRequest:
    """A request as it is remembered; see `StoryRequest`.

    Args:
        given: sha256 of its pictures.
    """

    generation_id: str
    text: str
    given: tuple[str, ...]
    rules: GenerationOptions
    door: Door
    key: str | None
    started_at: datetime


def interrupted_rows(request: InterruptedRequest, calls: Sequence[ModelCallRow]) -> Rows:
    """Its row, and those of the calls that were made for it."""
    rules, drawn = request.rules, [call for call in calls if call.role == "generator"]
    names: dict[Role, str] = {call.role: f"{call.backend}/{call.model}" for call in calls}
    row = GenerationRow(
        generation_id=request.generation_id,
        shard=request.generation_id,
        door=request.door,
        request_key=request.key,
        text=request.text,
        input_images=list(request.given),
        prompt_id=prompt_id_of(request.text, request.given),
        plan_id=None,
        trajectory_id=stable_hash("interrupted", request.generation_id),
        status="interrupted",
        error="the process was stopped before it was finished",
        **{role: names.get(role) for role in LOOP_ROLES if role != "scorer"},
        t_max=rules.t_max,
        on_exhausted=rules.on_exhausted,
        conditioning=rules.conditioning,
        candidates=rules.candidates,
        seed=rules.seed,
        steps=0,
        attempts=len(drawn),
        wasted_draws=0,
        images=[],
        cost_usd=total_cost(calls),
        seconds=sum(call.seconds for call in calls),
        started_at=request.started_at,
    )
    return {GENERATIONS: [row], MODEL_CALLS: calls}
