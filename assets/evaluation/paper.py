"""Our ablation compared with the paper's table 5: the same variants, other requests and models.

The paper's numbers are UEval scores (0-100) of FLUX.2-klein-9B with Qwen3-VL-8B agents, of texts
and of images; ours are shares of final images that are right. Only the order can be compared.
"""

from dataclasses import dataclass
from typing import Literal

from .summary import Interval, Summary
from .variants import VARIANTS

MEASURE = "final_success"


@dataclass(frozen=True)
class PaperRow:
    title: str
    image: float  # UEval's image score
    average: float  # of that and the text score


# The average of "+ Planner SFT" is printed as 60.5; its two cells, and the equal row T_max = 1,
# say 60.2.
# `base` and `untrained` stand for one row: there, an untrained model answers in the form. So do a
# variant and its `_sampled` one: how the paper's agents decode is not said. The control
# `sft_on_rl_labels` is not the paper's.
TABLE_5: dict[str, PaperRow] = {
    "generator_only": PaperRow("FLUX.2-klein-9B", 36.4, 18.2),
    "base": PaperRow("+ Qwen3-VL-8B, zero-shot", 62.6, 48.1),
    "untrained": PaperRow("+ Qwen3-VL-8B, zero-shot", 62.6, 48.1),
    "planner_sft": PaperRow("+ Planner SFT", 61.8, 60.2),
    "full_sft": PaperRow("+ Full SFT", 70.4, 64.5),
    "rl_no_step": PaperRow("+ RL without step reward", 72.2, 65.2),
    "rl_no_accuracy": PaperRow("+ RL without accuracy reward", 71.7, 65.1),
    "full_rl": PaperRow("+ Full RL", 74.0, 66.3),
    "full_sft_sampled": PaperRow("+ Full SFT", 70.4, 64.5),
    "full_rl_sampled": PaperRow("+ Full RL", 74.0, 66.3),
    "one_agent": PaperRow("One agent", 63.7, 54.5),
    "unfiltered": PaperRow("Unfiltered data", 67.3, 62.8),
    "t_max_1": PaperRow("T_max = 1", 61.8, 60.2),
    "t_max_3": PaperRow("T_max = 3", 72.0, 65.3),
    "t_max_5": PaperRow("T_max = 5", 74.0, 66.3),
}

# (worse, better): what the paper's table claims.
RELATIONS = (
    ("generator_only", "planner_sft"),
    ("planner_sft", "full_sft"),
    ("full_sft", "full_rl"),
    ("full_sft_sampled", "full_rl_sampled"),
    ("full_sft", "rl_no_step"),
    ("full_sft", "rl_no_accuracy"),
    ("rl_no_step", "full_rl"),
    ("rl_no_accuracy", "full_rl"),
    ("one_agent", "full_sft"),
    ("unfiltered", "full_sft"),
    ("t_max_1", "t_max_3"),
    ("t_max_3", "t_max_5"),
)
Outcome = Literal["reproduced", "within noise", "reversed", "not measured"]


@dataclass(frozen=True)
class Relation:
    """Two variants of which the paper's `better` is better; `gap`: by how much it is here."""

    worse: str
    better: str
    gap: Interval | None
    spread: float | None  # of the gap, over training seeds

    @property
    def outcome(self) -> Outcome:
        """Reproduced and reversed only where the interval is clear of zero."""
        if self.gap is None:
            return "not measured"
        if self.gap.low > 0:
            return "reproduced"
        return "reversed" if self.gap.high < 0 else "within noise"


def side_by_side(summary: Summary) -> list[dict[str, object]]:
    """A row per variant: ours with its interval, and the paper's where it has one."""
    return [_row(summary, name) for name in summary.variants if name in VARIANTS]


def relations(summary: Summary) -> list[Relation]:
    """What is here of each relation of the paper's table 5."""
    return [
        Relation(
            worse,
            better,
            summary.difference(better, worse, MEASURE),
            summary.difference_spread(better, worse, MEASURE),
        )
        for worse, better in RELATIONS
    ]


def relations_table(summary: Summary) -> list[dict[str, object]]:
    """A row per relation: the paper's gap, ours with its interval, and the outcome."""
    return [
        {
            "relation": f"{each.worse} < {each.better}",
            "UEval of pictures, paper": f"{_gap_of_paper(each):+.1f}",
            "difference here": format(each.gap, "+") if each.gap else "–",
            "SD of seeds": "–" if each.spread is None else f"{each.spread:.3f}",
            "requests": each.gap.requests if each.gap else 0,
            "outcome": each.outcome,
        }
        for each in relations(summary)
    ]


def _gap_of_paper(relation: Relation) -> float:
    return TABLE_5[relation.better].image - TABLE_5[relation.worse].image


def _row(summary: Summary, name: str) -> dict[str, object]:
    ours, calls = summary.mean(name, MEASURE), summary.mean(name, "generator_calls")
    paper, spread = TABLE_5.get(name), summary.spread(name, MEASURE)
    return {
        "variant": name,
        "final pictures right, here": f"{ours}" if ours else "–",
        "SD of seeds": "–" if spread is None else f"{spread:.3f}",
        "generator calls per request, here": f"{calls.mean:.2f}" if calls else "–",
        "row of the paper": paper.title if paper else "–",
        "UEval, pictures": paper.image if paper else "–",
        "UEval, average": paper.average if paper else "–",
    }
