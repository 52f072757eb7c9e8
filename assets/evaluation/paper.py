"""Our ablation compared with the paper's table 5: the same variants, other requests and models.

The paper's numbers are UEval scores (0-100) of FLUX.2-klein-9B with Qwen3-VL-8B agents, of texts
and of images; ours are shares of final images that are right. Only the order can be compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from .summary import Interval, Summary

MEASURE = "final_success"


@dataclass(frozen=True)
class PaperRow:
    title: str
    image: float  # UEval's image score
    average: float  # of that and the text score


# The average of "+ Planner SFT" is printed as 60.5; its two cells, and the equal row T_max = 1,
# say 60.2.
TABLE_5: dict[str, PaperRow] = {
    "generator_only": PaperRow("FLUX.2-klein-9B", 36.4, 18.2),
    "base": PaperRow("+ Qwen3-VL-8B, zero-shot", 62.6, 48.1),
    "planner_sft": PaperRow("+ Planner SFT", 61.8, 60.2),
    "full_sft": PaperRow("+ Full SFT", 70.4, 64.5),
    "rl_no_step": PaperRow("+ RL without step reward", 72.2, 65.2),
    "rl_no_accuracy": PaperRow("+ RL without accuracy reward", 71.7, 65.1),
    "full_rl": PaperRow("+ Full RL", 74.0, 66.3),
    "one_agent": PaperRow("One agent", 63.7, 54.5),
    "unfiltered": PaperRow("Unfiltered data", 67.3, 62.8),
    "t_max_1": PaperRow("T_max = 1", 61.8, 60.2),
    "t_max_3": PaperRow("T_max = 3", 72.0, 65.3),
    "t_max_5": PaperRow("T_max = 5", 74.0, 66.3),
}


@dataclass(frozen=True)
class Reversal:
    """Two variants in the opposite order of the paper's."""

    above: str
    below: str
    gap: Interval  # `above` minus `below`, here

    @property
    def significant(self) -> bool:
        return self.gap.low > 0

    def __str__(self) -> str:
        ours, theirs = TABLE_5[self.above], TABLE_5[self.below]
        noise = "" if self.significant else ": within the noise"
        return (
            f"{self.above} is above {self.below} by {self.gap}{noise}; "
            f"the paper has {ours.image} and {theirs.image}"
        )


def side_by_side(summary: Summary) -> list[dict[str, object]]:
    """A row per variant: ours with its interval, and the paper's."""
    return [_row(summary, name) for name in TABLE_5 if name in summary.variants]


def reversals(summary: Summary) -> list[Reversal]:
    """Every pair of variants whose order is the opposite of the paper's."""
    pairs = _ordered_pairs(summary)
    gaps = ((above, below, summary.difference(above, below, MEASURE)) for below, above in pairs)
    return [Reversal(above, below, gap) for above, below, gap in gaps if gap and gap.mean > 0]


def describe_order(summary: Summary) -> str:
    """How much of the paper's order holds here, as Markdown."""
    pairs = list(_ordered_pairs(summary))
    if not pairs:
        return f"No two variants have values of {MEASURE}, so their order cannot be compared."
    found = sorted(reversals(summary), key=lambda reversal: -reversal.gap.mean)
    significant = sum(reversal.significant for reversal in found)
    head = (
        f"Of {len(pairs)} pairs of variants that differ in the paper, {len(found)} are in the "
        f"opposite order here, {significant} of them by more than chance."
    )
    return "\n".join([head, "", *(f"- {reversal}" for reversal in found)])


def _ordered_pairs(summary: Summary) -> Iterator[tuple[str, str]]:
    """Measured variants that differ in the paper, the better one first."""
    measured = [name for name in TABLE_5 if summary.values.get(name, {}).get(MEASURE)]
    for pair in combinations(measured, 2):
        better, worse = sorted(pair, key=lambda name: -TABLE_5[name].image)
        if TABLE_5[better].image != TABLE_5[worse].image:
            yield better, worse


def _row(summary: Summary, name: str) -> dict[str, object]:
    ours, calls = summary.mean(name, MEASURE), summary.mean(name, "generator_calls")
    paper = TABLE_5[name]
    return {
        "variant": name,
        "final pictures right, here": f"{ours}" if ours else "–",
        "generator calls per request, here": f"{calls.mean:.2f}" if calls else "–",
        "row of the paper": paper.title,
        "UEval, pictures": paper.image,
        "UEval, average": paper.average,
    }
