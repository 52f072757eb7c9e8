"""Stretches of a bank that a round drew: prompts of split train alone, by quotas.

A bank is a function of pack, seed and these: what is recorded of a round never changes, so neither
do its prompts, nor those before and after it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .pack import Pack


@dataclass(frozen=True)
class TrainStretch:
    """Prompts number `start` to `end` (exclusive) of a bank.

    Args:
        categories: category -> how many times its share; 1 where one is missing.
        templates: template -> weight of its turns, likewise.
    """

    start: int
    end: int
    categories: Mapping[str, float] = field(default_factory=dict)
    templates: Mapping[str, float] = field(default_factory=dict)

    def weight(self, template: str) -> float:
        return self.templates.get(template, 1.0)

    def subcategories(self, pack: Pack, order: Sequence[str]) -> Iterator[str]:
        """The sub-category of each prompt: training ones, evenly spread by their weights.

        Smooth weighted round-robin: after any number of prompts, each has its share within 1.
        """
        weights = {
            sub: self.categories.get(pack.category_of[sub], 1.0)
            for sub in order
            if not pack.subcategories[sub].heldout
        }
        credit, total = dict.fromkeys(weights, 0.0), sum(weights.values())
        for _ in range(self.start, self.end):
            for sub, weight in weights.items():
                credit[sub] += weight
            chosen = max(credit, key=credit.__getitem__)
            credit[chosen] -= total
            yield chosen


def stretch_at(stretches: Sequence[TrainStretch], number: int) -> TrainStretch | None:
    """The stretch that a prompt's number is in."""
    return next((each for each in stretches if each.start <= number < each.end), None)
