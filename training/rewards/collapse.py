"""Detects from its rollouts that a policy has collapsed.

GRPO can end in a policy that gives the same answer to every input: all answers of a group are
equal, all advantages are zero, and training continues without learning, at an inconspicuous loss.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from schemas.training import RolloutRow

LAST_STEPS = 5  # steps whose rollouts are examined
_MIN_ROLLOUTS = 16  # of a kind; fewer show nothing
_ALL = 0.98  # share that counts as "everything"


def find_collapse(
    rollouts: Iterable[RolloutRow], previous_prompts: Mapping[str, str] | None = None
) -> str | None:
    """The kind of collapse that the rollouts of the last steps show; None: none.

    Args:
        previous_prompts: row_id -> prompt of the judged image, where known: repeating it is no
            refinement either.
    """
    rows = list(rollouts)
    if _share([row.verdict is None for row in rows]) >= _ALL:
        return "never answers in the form asked for"
    if _always_says(True, rows):
        return "accepts everything"
    if _always_says(False, rows):
        return "rejects everything"
    if _never_refines(rows, previous_prompts or {}):
        return "never refines"
    return None


def judged_prompts(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Id of a row of `critic_rl` -> prompt of the image that it judges."""
    return {row["row_id"]: row["rewritten_prompt"] or row["origin_prompt"] for row in rows}


def _always_says(verdict: bool, rows: Sequence[RolloutRow]) -> bool:
    """Whether it is the only verdict, also where it is wrong: all images of a step may be good."""
    answers = [row for row in rows if row.verdict is not None]
    wrong = [row.verdict == verdict for row in answers if row.truth != verdict]
    return _share(wrong) >= _ALL and _share([row.verdict == verdict for row in answers]) >= _ALL


def _never_refines(rows: Sequence[RolloutRow], previous: Mapping[str, str]) -> bool:
    rejecting = [row for row in rows if row.verdict is False]
    return _share([_repeats(row, previous) for row in rejecting]) >= _ALL


def _repeats(row: RolloutRow, previous: Mapping[str, str]) -> bool:
    return (row.refined_prompt or "").strip() in ("", previous.get(row.row_id, "").strip())


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if len(flags) >= _MIN_ROLLOUTS else 0.0
