"""A policy that has given up judging, told from its rollouts.

GRPO can end in a policy that says the same whatever it sees: every answer of a group is alike, all
advantages are zero, and training goes on without learning, its loss as calm as ever.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from schemas.training import RolloutRow

LAST_STEPS = 5  # whose rollouts tell
_ENOUGH = 16  # rollouts of a kind, below which nothing is said about it
_ALL = 0.98  # what counts as "everything"


def collapsed(
    rollouts: Iterable[RolloutRow], previous_prompts: Mapping[str, str] | None = None
) -> str | None:
    """The name of the collapse that the rollouts of the last steps show; None: none.

    Args:
        previous_prompts: row_id to the prompt that made the judged picture, where known: repeating
            it is no refinement either.
    """
    rows = list(rollouts)
    if _share([row.verdict is None for row in rows]) >= _ALL:
        return "never answers in the form asked for"
    if _says(True, rows):
        return "accepts everything"
    if _says(False, rows):
        return "rejects everything"
    if _never_refines(rows, previous_prompts or {}):
        return "never refines"
    return None


def judged_prompts(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Row of `critic_rl` -> prompt that made the picture which it judges."""
    return {row["row_id"]: row["rewritten_prompt"] or row["origin_prompt"] for row in rows}


def _says(verdict: bool, rows: Sequence[RolloutRow]) -> bool:
    """Whether it is the one verdict, above all where it is wrong: some steps are all good."""
    answers = [row for row in rows if row.verdict is not None]
    wrong = [row.verdict == verdict for row in answers if row.truth != verdict]
    return _share(wrong) >= _ALL and _share([row.verdict == verdict for row in answers]) >= _ALL


def _never_refines(rows: Sequence[RolloutRow], previous: Mapping[str, str]) -> bool:
    rejecting = [row for row in rows if row.verdict is False]
    return _share([_repeats(row, previous) for row in rejecting]) >= _ALL


def _repeats(row: RolloutRow, previous: Mapping[str, str]) -> bool:
    return (row.refined_prompt or "").strip() in ("", previous.get(row.row_id, "").strip())


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if len(flags) >= _ENOUGH else 0.0
