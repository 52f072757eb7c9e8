"""The prompt bank: an endless, reproducible sequence of prompts from a pack, cut into shards.

Sub-categories take turns, always in the same order, so every stretch of the sequence is balanced
over them. Prompt number k depends on the pack, the seed and the prompts before it only: a bank
that grows keeps the full shards that it had.

Near-duplicates: a prompt is left out when, compared with an earlier prompt of any split, the words
of its terms and all of its words both have a Jaccard similarity of at least `near_duplicate`
(0.8). Only content words in their base form count: no function words, no numbers, no suffix, no
word order. "How to fold a boat", "How do I fold a boat?" and "How to fold a boat both visually and
textually" are one prompt. See `near_duplicates` for the algorithm.

Held-out prompts never share with training prompts
- a template or a combination of terms (split `heldout`): some templates are marked in the pack,
  and a share of all combinations, chosen by hash, is reserved for them;
- a sub-category or a combination of terms (split `heldout_category`): sub-categories are marked in
  the pack. They use the templates of training, so that only the subject is new.
"""

import itertools
import math
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random

from schemas import FoundryError
from schemas.prompts import PromptRow, Split

from .english import with_suffix
from .near_duplicates import NearDuplicates
from .pack import Pack, Suffix, Template
from .settings import BankSettings
from .template_fills import FillSequence, TemplateFill, TermChoice, choices

Combination = tuple[str, ...]


@dataclass(frozen=True)
class Bank:
    """Prompts, and how many candidates were left out as near-duplicates on the way to them."""

    prompts: list[PromptRow]
    near_duplicates: int


def generate_bank(pack: Pack, settings: BankSettings, count: int) -> list[PromptRow]:
    """The first `count` prompts of a pack.

    Raises:
        FoundryError: the pack cannot give as many distinct prompts.
    """
    return draw_bank(pack, settings, count).prompts


def draw_bank(pack: Pack, settings: BankSettings, count: int) -> Bank:
    """`generate_bank`, with what happened on the way."""
    drawing = _Drawing(pack, settings)
    prompts = list(itertools.islice(drawing, count))
    if len(prompts) < count:
        raise FoundryError(drawing.shortage(len(prompts), count))
    return Bank(prompts, drawing.near_duplicates)


def shard_name(pack: str, number: int) -> str:
    return f"{pack}-{number:04d}"


def prompt_id(pack: str, text: str, images: list[str]) -> str:
    """Id of a prompt: the pack and a hash of its text and the sha256 of its input images."""
    digest = sha256("\n".join([text, *images]).encode()).hexdigest()
    return f"{pack}-{digest[:12]}"


def _seeded(*parts: object) -> Random:
    return Random(sha256("/".join(map(str, parts)).encode()).digest())


def _fraction(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    digest = sha256("\n".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


@dataclass
class _Turns:
    """Walks through the templates of a sub-category, taken in turn until they end."""

    walks: list[FillSequence]
    rng: Random
    _round: list[FillSequence] = field(default_factory=list)

    def __iter__(self) -> Iterator[TemplateFill]:
        while self.walks:
            if not self._round:
                self._round = self.rng.sample(self.walks, len(self.walks))
            walk = self._round[-1]
            filling = next(walk, None)
            if filling is None:
                self.walks.remove(walk)
                self._round.pop()
            else:
                yield filling

    def done(self) -> None:
        """The walk that gave the last filling has had its turn."""
        self._round.pop()


class _Drawing(Iterator[PromptRow]):
    """The sequence of prompts. Ends when a sub-category whose turn it is has no more."""

    def __init__(self, pack: Pack, settings: BankSettings) -> None:
        self._pack, self._settings = pack, settings
        self._order = _seeded(settings.seed, pack.name).sample(
            list(pack.subcategories), len(pack.subcategories)
        )
        self._options: dict[tuple[str, tuple[str, ...]], list[TermChoice]] = {}
        self._turns = {
            (sub, heldout): self._turns_of(sub, heldout)
            for sub in self._order
            for heldout in (False, True)
        }
        self._fillings = {key: iter(turns) for key, turns in self._turns.items()}
        self._reserves = any(template.heldout for template in pack.templates.values())
        self._owner: dict[Combination, Split] = {}
        self._seen = NearDuplicates(settings.near_duplicate, self._commonness())
        self._number = 0
        self.near_duplicates = 0
        self._exhausted = ""

    def __next__(self) -> PromptRow:
        turn, place = divmod(self._number, len(self._order))
        sub = self._order[place]
        split, filling = self._draw(sub, self._split(sub, turn, place))
        row = self._row(sub, split, filling)
        self._number += 1
        return row

    def shortage(self, given: int, wanted: int) -> str:
        banks = ", ".join(self._pack.subcategories[self._exhausted].banks)
        return (
            f"pack {self._pack.name!r} gives {given} distinct prompts balanced over its "
            f"sub-categories, {wanted} were asked: {self._exhausted!r} has no more; add terms to "
            f"its banks ({banks}) or templates that serve it, or ask for fewer"
        )

    def _turns_of(self, sub: str, heldout: bool) -> _Turns:
        rng = _seeded(self._settings.seed, self._pack.name, sub, heldout)
        served = {
            template_id: template
            for template_id, template in self._pack.templates.items()
            if template.heldout == heldout and sub in self._pack.serves[template_id]
        }
        walks = [
            FillSequence(template_id, template, self._options_of(template, sub), rng)
            for template_id, template in served.items()
        ]
        return _Turns(walks, rng)

    def _options_of(self, template: Template, sub: str) -> dict[tuple[str, int], list[TermChoice]]:
        banks = self._pack.subcategories[sub].banks
        options = {}
        for slot in template.slots:
            key = (slot.source, tuple(banks))
            if key not in self._options:
                self._options[key] = choices(self._pack, slot, banks)
            options[slot.key] = self._options[key]
        return options

    def _commonness(self) -> dict[str, float]:
        """Uses of a term's word if every template were used once per sub-category."""
        commonness: dict[str, float] = defaultdict(float)
        slots: Counter[tuple[str, tuple[str, ...]]] = Counter()
        for template_id, template in self._pack.templates.items():
            for sub in self._pack.serves[template_id]:
                banks = tuple(self._pack.subcategories[sub].banks)
                slots.update((slot.source, banks) for slot in template.slots)
        for key, uses in slots.items():
            for choice in self._options[key]:
                for word in choice.words:
                    commonness[word] += uses / len(self._options[key])
        return commonness

    def _split(self, sub: str, turn: int, place: int) -> Split:
        """Every sub-category's held-out prompts are spread evenly, each starting elsewhere."""
        if self._pack.subcategories[sub].heldout:
            return "heldout_category"
        share, phase = self._settings.heldout_share, place / len(self._order)
        due = math.floor((turn + 1) * share + phase) > math.floor(turn * share + phase)
        return "heldout" if due else "train"

    def _draw(self, sub: str, split: Split) -> tuple[Split, TemplateFill]:
        """The next filling of a split; where held-out templates are used up, of train."""
        for attempt in dict.fromkeys((split, "train" if split == "heldout" else split)):
            key = (sub, attempt == "heldout")
            for filling in self._fillings[key]:
                if self._accepts(filling, attempt):
                    self._turns[key].done()
                    return attempt, filling
        self._exhausted = sub
        raise StopIteration

    def _accepts(self, filling: TemplateFill, split: Split) -> bool:
        combination = tuple(sorted(filling.terms))
        if self._owner.get(combination, split) != split:
            return False
        if split != "heldout_category" and self._reserved(combination) != (split == "heldout"):
            return False
        if not self._seen.add(filling.content()):
            self.near_duplicates += 1
            return False
        self._owner[combination] = split
        return True

    def _reserved(self, combination: Combination) -> bool:
        """Whether only held-out prompts may use this combination of terms."""
        share = _fraction(self._settings.seed, *combination)
        return self._reserves and share < self._settings.heldout_terms

    def _row(self, sub: str, split: Split, filling: TemplateFill) -> PromptRow:
        suffix = self._suffix(filling)
        text = with_suffix(filling.text(), suffix.text)
        return PromptRow(
            prompt_id=prompt_id(self._pack.name, text, []),
            pack=self._pack.name,
            category=self._pack.category_of[sub],
            subcategory=sub,
            template_id=filling.template_id,
            text=text,
            terms=filling.terms,
            suffix=suffix.name,
            input_images=[],
            shard=shard_name(self._pack.name, self._number // self._settings.shard_size),
            split=split,
        )

    def _suffix(self, filling: TemplateFill) -> Suffix:
        if not filling.template.suffixes:
            return Suffix()
        fitting = [
            suffix
            for suffix in self._pack.taxonomy.suffixes
            if suffix.only is None or filling.template_id in suffix.only
        ] or [Suffix()]
        ends = list(itertools.accumulate(suffix.weight for suffix in fitting))
        spin = _fraction(self._settings.seed, filling.template_id, *filling.terms) * ends[-1]
        return fitting[bisect(ends, spin)]
