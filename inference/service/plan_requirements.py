"""What a request demands of its plan, checked before anything is drawn."""

import math
from collections.abc import Sequence

from ..events import PlanReady, TrajectoryFailed
from ..roles import PlanStep
from .request_parsing import Json

_CHARACTERS_PER_TOKEN = 4


def plan_requirements(
    max_tokens: int | None = None, tokens_param: str = "", image_param: str | None = None
) -> Json:
    """The demands as JSON, to be stored with the request.

    Args:
        max_tokens: that the plan may have; `tokens_param`: the field that says it.
        image_param: the field that demands an image.
    """
    return {"max_tokens": max_tokens, "tokens_param": tokens_param, "image_param": image_param}


def unmet_requirement(requirements: Json | None, event: PlanReady) -> TrajectoryFailed | None:
    """The end of a generation whose plan does not meet a demand of its request."""
    if not requirements:
        return None
    steps, allowed = event.plan.steps, requirements["max_tokens"]
    param = requirements["image_param"]
    if param and all(step.prompt is None for step in steps):
        reason = f"{param}: the plan has no picture; describe one"
        return TrajectoryFailed(reason, refused=True)
    tokens = event.call.output_tokens or _estimate_tokens(steps)
    if allowed is not None and tokens > allowed:
        param = requirements["tokens_param"]
        reason = f"{param}: the plan has {tokens} tokens, more than {allowed}; texts are not cut"
        return TrajectoryFailed(reason, refused=True)
    return None


def _estimate_tokens(steps: Sequence[PlanStep]) -> int:
    """For backends that count no tokens."""
    texts = [step.text for step in steps]
    return math.ceil(sum(map(len, texts)) / _CHARACTERS_PER_TOKEN)
