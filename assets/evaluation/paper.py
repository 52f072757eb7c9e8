"""Our ablation beside the paper's table 5: the same variants, another world.

The paper's numbers are UEval scores (0-100) of FLUX.2-klein-9B with Qwen3-VL-8B agents, of text
and of pictures; ours are shares of final pictures that are right. Only the order can be compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from .bootstrap import Interval
from .summary import Summary

MEASURE = "final_success"


@dataclass(frozen=True)
class PaperRow:
    """A row of table 5: UEval's score of pictures, and its average with that of texts."""

    title: str
    image: float
    average: float


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
    """Two variants whose order is not the paper's.

    `gap`: how much better, here, the one is that the paper puts below.
    """

    above: str
    below: str
    gap: Interval

    @property
    def sure(self) -> bool:
        """Whether the difference cannot be chance, as its interval goes."""
        return self.gap.low > 0

    def __str__(self) -> str:
        ours, theirs = TABLE_5[self.above], TABLE_5[self.below]
        noise = "" if self.sure else ": within the noise"
        return (
            f"{self.above} is above {self.below} by {self.gap}{noise}; "
            f"the paper has {ours.image} and {theirs.image}"
        )


def side_by_side(summary: Summary) -> list[dict[str, object]]:
    """A row a variant: ours with its interval, and the paper's."""
    return [_row(summary, name) for name in TABLE_5 if name in summary.variants]


def reversals(summary: Summary) -> list[Reversal]:
    """Every pair of variants that stands the other way round than in the paper."""
    return list(_reversals(summary))


def order_in_words(summary: Summary) -> str:
    """What of the paper's order holds here, as Markdown."""
    found = sorted(reversals(summary), key=lambda r: -r.gap.mean)
    names = [name for name in TABLE_5 if name in summary.variants]
    ordered = [p for p in combinations(names, 2) if TABLE_5[p[0]].image != TABLE_5[p[1]].image]
    sure = sum(reversal.sure for reversal in found)
    head = (
        f"Of {len(ordered)} pairs of variants that differ in the paper, {len(found)} stand the "
        f"other way round here, {sure} of them by more than chance."
    )
    return "\n".join([head, "", *(f"- {reversal}" for reversal in found)])


def _row(summary: Summary, name: str) -> dict[str, object]:
    ours, paper = summary.mean(name, MEASURE), TABLE_5[name]
    calls = summary.mean(name, "generator_calls")
    return {
        "variant": name,
        "final pictures right, here": str(ours) if ours else "–",
        "generator calls a story, here": f"{calls.mean:.2f}" if calls else "–",
        "row of the paper": paper.title,
        "UEval, pictures": paper.image,
        "UEval, average": paper.average,
    }


def _reversals(summary: Summary) -> Iterator[Reversal]:
    names = [name for name in TABLE_5 if name in summary.variants]
    for pair in combinations(names, 2):
        below, above = sorted(pair, key=lambda name: -TABLE_5[name].image)
        if TABLE_5[below].image == TABLE_5[above].image:
            continue
        gap = summary.difference(above, below, MEASURE)
        if gap and gap.mean > 0:
            yield Reversal(above, below, gap)
