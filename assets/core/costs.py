"""What calls of models cost, for asset metadata."""

from collections.abc import Sequence
from typing import Any

from schemas.trajectories import ModelCallRow

from .node import sample


def spent(calls: Sequence[ModelCallRow]) -> dict[str, Any]:
    """What calls cost, by role."""
    roles = sorted({call.role for call in calls})
    rows = []
    for role in roles:
        mine = [call for call in calls if call.role == role]
        rows.append(
            {
                "role": role,
                "calls": len(mine),
                "retries": sum(call.retries for call in mine),
                "errors": sum(call.error is not None for call in mine),
                "seconds": round(sum(call.seconds for call in mine), 2),
                "cost_usd": round(sum(call.cost_usd or 0 for call in mine), 4),
            }
        )
    return {"model_calls": sample(rows)}
