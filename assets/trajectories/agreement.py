"""How far the scorers of an ensemble agree, pair by pair, over the attempts that both scored."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from schemas.trajectories import MemberScoreRow

from ..core import plotting
from ..core.metadata import image_metadata, table_metadata

if TYPE_CHECKING:
    import pandas as pd

_STEP = ["trajectory_id", "step_number"]


@dataclass(frozen=True)
class ScoreAgreement:
    """Two members' overall scores (0-10), compared over the attempts that both scored.

    Correlations are -1 to 1; None: fewer than two attempts, or a member gives all the same score.
    """

    members: tuple[str, str]
    attempts: int
    pearson: float | None
    spearman: float | None
    mean_difference: float | None  # absolute, in points; None: no attempts
    # Share of the steps with several attempts for which both members have the same best one (the
    # earliest of equals, as in the loop); None: no such step.
    same_best: float | None

    def table_row(self) -> dict[str, str]:
        return {
            "members": " and ".join(self.members),
            "attempts": str(self.attempts),
            "Pearson": _format(self.pearson),
            "Spearman": _format(self.spearman),
            "mean difference": _format(self.mean_difference),
            "same best attempt": "-" if self.same_best is None else f"{self.same_best:.0%}",
        }


def agreements(rows: Sequence[MemberScoreRow]) -> list[ScoreAgreement]:
    """The agreement of every pair of members, sorted by name."""
    import pandas as pd

    columns = [*_STEP, "iteration", "member", "overall"]
    frame = pd.DataFrame([row.model_dump(include=set(columns)) for row in rows], columns=columns)
    frame = frame.astype({"overall": float})  # None: the member refused
    overall = frame.pivot(index=[*_STEP, "iteration"], columns="member", values="overall")
    return [_compare(overall[list(pair)].dropna()) for pair in combinations(overall.columns, 2)]


def agreement_metadata(rows: Sequence[MemberScoreRow]) -> dict[str, Any]:
    """Asset metadata: agreement of the members and how often each refused; empty without rows."""
    if not rows:
        return {}
    pairs = agreements(rows)
    refusals = Counter(row.member for row in rows if row.refusal is not None)
    names = sorted({row.member for row in rows})
    plot = plotting.agreement_map(names, {pair.members: pair.spearman for pair in pairs})
    return {
        "agreement": table_metadata([pair.table_row() for pair in pairs]),
        "agreement_plot": image_metadata(plot, "Rank correlation of the members' overall scores"),
        "refusals": table_metadata([{"member": name, "refused": refusals[name]} for name in names]),
    }


def _compare(both: "pd.DataFrame") -> ScoreAgreement:
    """Compare two columns of overall scores, indexed by step and iteration."""
    one, other = both.columns
    steps = [step for _, step in both.sort_index().groupby(_STEP) if len(step) > 1]
    same = [step[one].idxmax() == step[other].idxmax() for step in steps]
    pearson, spearman = (_number(both.corr(how).loc[one, other]) for how in ("pearson", "spearman"))
    difference = _number((both[one] - both[other]).abs().mean())
    same_best = sum(same) / len(same) if same else None
    return ScoreAgreement((one, other), len(both), pearson, spearman, difference, same_best)


def _number(value: Any) -> float | None:
    return None if value != value else float(value)  # NaN is not itself


def _format(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"
