"""Rewarded rollouts: lines of the journal, rows of the table, figures, signs of a collapse.

GRPO can end in a policy that gives the same answer to every input: all answers of a group are
equal, all advantages are zero, and training continues without learning, at an inconspicuous loss.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from schemas import FoundryError
from schemas.training import RolloutRow, RolloutStatus
from schemas.yaml_config import ConfigModel
from warehouse import Journal

from .reward import RewardParts

DEV_REWARD = "dev_reward"  # the figure by which a checkpoint is chosen
LAST_STEPS = 5  # steps whose rollouts are examined
_MIN_ROLLOUTS = 16  # of a kind; fewer show nothing
_ALL = 0.98  # share that counts as "everything"


class RolloutResult(NamedTuple):
    """What a rollout is worth, and what its role adds to it: see `RolloutRow`."""

    status: RolloutStatus
    parts: RewardParts
    reward: float | None = None
    verdict: bool | None = None
    refined_prompt: str | None = None
    truth: bool | None = None
    image: str | None = None
    error: str | None = None
    generator: str | None = None


class Rollout(ConfigModel):
    """A line of the journal."""

    attempt: str = Field(
        description="The process: a step that a killed one had begun is sampled again by the next"
    )
    row: RolloutRow = Field(description="Its row of the table")
    dev: bool = Field(False, description="Its row is not trained on: it is in no table")


def rollout_rows(journal: Path) -> list[RolloutRow]:
    """Every rollout that training used, in the order of their rewards; none without a journal.

    Of a step that was sampled again after an interruption, only the last sample counts.

    Raises:
        FoundryError: a line has not the form of this version.
    """
    trained = [rollout for rollout in _rollouts(journal) if not rollout.dev]
    last = {rollout.row.step: rollout.attempt for rollout in trained}
    return [rollout.row for rollout in trained if rollout.attempt == last[rollout.row.step]]


def right_shares(journal: Path) -> dict[str, float]:
    """Row -> share of its answers that have the right verdict, or are a right plan; rows none of
    whose answers could be graded are missing. Raises FoundryError as `rollout_rows`."""
    right: defaultdict[str, list[bool]] = defaultdict(list)
    for row in (rollout.row for rollout in _rollouts(journal)):
        if row.reward is not None:
            is_plan = row.truth is None
            right[row.row_id].append(row.accuracy == 1 if is_plan else row.verdict == row.truth)
    return {row_id: fmean(answers) for row_id, answers in right.items()}


def _rollouts(journal: Path) -> Iterator[Rollout]:
    for number, record in enumerate(Journal(journal).records(), start=1):
        try:
            yield Rollout.model_validate(record)
        except ValidationError as error:
            raise FoundryError(
                f"{journal}:{number}: not a rollout of this version; move the file away, and the "
                "run's training starts a new one"
            ) from error


def step_figures(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Figures of a step, by name; none without rollouts.

    Means are over the rollouts that have the part; one that none has is missing.
    """
    if not rollouts:
        return {}
    rows = [rollout.row for rollout in rollouts]
    parts: dict[str, list[float | None]] = {
        "reward": [row.reward for row in rows],
        "accepted_share": [row.verdict for row in rows],
        "accuracy": [row.accuracy for row in rows],
        "step_reward": [row.step_reward for row in rows],
    }
    return {
        "masked_share": sum(row.status == "masked" for row in rows) / len(rows),
        "malformed_share": sum(row.status == "malformed" for row in rows) / len(rows),
        **_known_means(parts),
        **_equal_groups(rows),
    }


def dev_figures(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Figures of an evaluation on rows that are not trained on, by name; none without a reward.

    Means are over the answers that have the part; one that no answer has is missing.
    """
    rows = [rollout.row for rollout in rollouts]
    parts = {
        DEV_REWARD: [row.reward for row in rows],
        "dev_accuracy": [row.accuracy for row in rows],
    }
    means = _known_means(parts)
    if DEV_REWARD not in means:
        return {}
    masked = sum(row.status == "masked" for row in rows) / len(rows)
    return means | {"dev_masked_share": masked}


def failed_share(rows: Iterable[RolloutRow]) -> float:
    """Share of the redrawn images, or of grades of plans, that failed or were refused; 0 where none
    was requested."""
    asked = [row.error is not None for row in rows if row.error or row.image or row.truth is None]
    return fmean(asked) if asked else 0.0


def find_collapse(rows: Sequence[RolloutRow], previous_prompts: Mapping[str, str]) -> str | None:
    """The kind of collapse that the rollouts of the last steps show; None: none.

    Args:
        previous_prompts: row_id -> prompt of the judged image, where known: repeating it is no
            refinement either.
    """
    if _share([row.status == "malformed" for row in rows]) >= _ALL:
        return "never answers in the form asked for"
    if _always_says(True, rows):
        return "accepts everything"
    if _always_says(False, rows):
        return "rejects everything"
    rejecting = [row for row in rows if row.verdict is False]
    if _share([_repeats(row, previous_prompts) for row in rejecting]) >= _ALL:
        return "never refines"
    return None


def judged_prompts(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Id of a row of `critic_rl` -> prompt of the image that it judges."""
    return {row["row_id"]: row["rewritten_prompt"] or row["origin_prompt"] for row in rows}


def _known_means(parts: Mapping[str, Iterable[float | None]]) -> dict[str, float]:
    """Means by name, of the values that there are; without any there is none."""
    known = {name: [each for each in values if each is not None] for name, values in parts.items()}
    return {name: fmean(values) for name, values in known.items() if values}


def _equal_groups(rows: Iterable[RolloutRow]) -> dict[str, float]:
    """Share of groups whose rewards are all the same: nothing is learned from them. Missing where
    no rollout has a reward."""
    rewards: defaultdict[str, set[float]] = defaultdict(set)
    for row in rows:
        if row.reward is not None:
            rewards[row.row_id].add(row.reward)
    equal = [len(different) == 1 for different in rewards.values()]
    return {"equal_groups_share": fmean(equal)} if equal else {}


def _always_says(verdict: bool, rows: Sequence[RolloutRow]) -> bool:
    """Whether it is the only verdict, also where it is wrong: all images of a step may be good."""
    answers = [row for row in rows if row.verdict is not None]
    wrong = [row.verdict == verdict for row in answers if row.truth != verdict]
    return _share(wrong) >= _ALL and _share([row.verdict == verdict for row in answers]) >= _ALL


def _repeats(row: RolloutRow, previous: Mapping[str, str]) -> bool:
    return (row.refined_prompt or "").strip() in ("", previous.get(row.row_id, "").strip())


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if len(flags) >= _MIN_ROLLOUTS else 0.0
