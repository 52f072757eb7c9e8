"""How far the scorers of an ensemble agree, pair by pair, over the attempts that both graded."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from schemas.trajectories import MemberScoreRow

if TYPE_CHECKING:
    import pandas as pd

_STEP = ["trajectory_id", "step_number"]


@dataclass(frozen=True)
class Agreement:
    """Two members' overall scores (0-10), compared.

    Attributes:
        attempts: graded by both.
        pearson, spearman: -1 to 1; None: fewer than two attempts, or a member that gives all of
            them the same.
        mean_difference: mean of the absolute differences, in points; None: no attempts.
        same_best: share of the steps with several such attempts of which both have the same
            best one, the earliest where some are equal, as the loop takes it; None: no such step.
    """

    members: tuple[str, str]
    attempts: int
    pearson: float | None
    spearman: float | None
    mean_difference: float | None
    same_best: float | None

    def shown(self) -> dict[str, str]:
        """A row of a table for people."""
        return {
            "members": " and ".join(self.members),
            "attempts": str(self.attempts),
            "Pearson": _shown(self.pearson),
            "Spearman": _shown(self.spearman),
            "mean difference": _shown(self.mean_difference),
            "same best attempt": "-" if self.same_best is None else f"{self.same_best:.0%}",
        }


def agreements(rows: Sequence[MemberScoreRow]) -> list[Agreement]:
    """The agreement of every two members, by name."""
    import pandas as pd

    columns = [*_STEP, "iteration", "member", "overall"]
    frame = pd.DataFrame([row.model_dump(include=set(columns)) for row in rows], columns=columns)
    frame = frame.astype({"overall": float})  # None: it refused
    overall = frame.pivot(index=[*_STEP, "iteration"], columns="member", values="overall")
    return [_agreement(overall[list(pair)].dropna()) for pair in combinations(overall.columns, 2)]


def _agreement(both: "pd.DataFrame") -> Agreement:
    """Of two columns of overall scores, by step and iteration."""
    one, other = both.columns
    difference = (both[one] - both[other]).abs().mean()
    return Agreement(
        members=(one, other),
        attempts=len(both),
        pearson=_number(both.corr("pearson").loc[one, other]),
        spearman=_number(both.corr("spearman").loc[one, other]),
        mean_difference=_number(difference),
        same_best=_same_best(both),
    )


def _same_best(both: "pd.DataFrame") -> float | None:
    one, other = both.columns
    steps = [step for _, step in both.sort_index().groupby(_STEP) if len(step) > 1]
    same = [step[one].idxmax() == step[other].idxmax() for step in steps]
    return sum(same) / len(same) if same else None


def _number(value: Any) -> float | None:
    return None if value != value else float(value)  # NaN is not itself


def _shown(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"
