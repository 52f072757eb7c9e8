"""The prompt bank: an endless, reproducible sequence of prompts from a pack, cut into shards.

Sub-categories take turns in a fixed order, so every stretch of the sequence is balanced over them.
Prompt number k depends only on the pack, the seed and the prompts before it: a bank that grows
keeps its full shards.

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

from .english import append_suffix
from .near_duplicates import NearDuplicates
from .pack import Pack, Suffix, Template
from .settings import BankSettings
from .template_fills import FillSequence, TemplateFill, TermChoice, choices

Combination = tuple[str, ...]


@dataclass(frozen=True)
class PromptBank:
    """Prompts, and how many candidates were left out as near-duplicates of them."""

    prompts: list[PromptRow]
    near_duplicates: int


def generate_bank(pack: Pack, settings: BankSettings, count: int) -> list[PromptRow]:
    """The first `count` prompts of a pack.

    Raises:
        FoundryError: the pack cannot give as many distinct prompts.
    """
    return build_bank(pack, settings, count).prompts


def build_bank(pack: Pack, settings: BankSettings, count: int) -> PromptBank:
    """`generate_bank`, with the number of near-duplicates."""
    sequence = _PromptSequence(pack, settings)
    prompts = list(itertools.islice(sequence, count))
    if len(prompts) < count:
        raise FoundryError(sequence.shortage(len(prompts), count))
    return PromptBank(prompts, sequence.near_duplicates)


def shard_name(pack: str, number: int) -> str:
    return f"{pack}-{number:04d}"


def prompt_id(pack: str, text: str, images: list[str]) -> str:
    """Id of a prompt: the pack and a hash of its text and the sha256 of its input images."""
    digest = sha256("\n".join([text, *images]).encode()).hexdigest()
    return f"{pack}-{digest[:12]}"


def _seeded_random(*parts: object) -> Random:
    return Random(sha256("/".join(map(str, parts)).encode()).digest())


def _fraction(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    digest = sha256("\n".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


@dataclass
class _TemplateRotation:
    """Fills of the templates of a sub-category, which take turns in random order until they end."""

    sequences: list[FillSequence]
    rng: Random
    _round: list[FillSequence] = field(default_factory=list)

    def __iter__(self) -> Iterator[TemplateFill]:
        while self.sequences:
            if not self._round:
                self._round = self.rng.sample(self.sequences, len(self.sequences))
            sequence = self._round[-1]
            fill = next(sequence, None)
            if fill is None:
                self.sequences.remove(sequence)
                self._round.pop()
            else:
                yield fill

    def next_template(self) -> None:
        """End the turn of the template that gave the last fill."""
        self._round.pop()


class _PromptSequence(Iterator[PromptRow]):
    """The sequence of prompts. Ends when a sub-category whose turn it is has no more."""

    def __init__(self, pack: Pack, settings: BankSettings) -> None:
        self._pack, self._settings = pack, settings
        self._order = _seeded_random(settings.seed, pack.name).sample(
            list(pack.subcategories), len(pack.subcategories)
        )
        self._options: dict[tuple[str, tuple[str, ...]], list[TermChoice]] = {}
        self._rotations = {
            (sub, heldout): self._rotation(sub, heldout)
            for sub in self._order
            for heldout in (False, True)
        }
        self._fills = {key: iter(rotation) for key, rotation in self._rotations.items()}
        self._reserves = any(template.heldout for template in pack.templates.values())
        self._split_of: dict[Combination, Split] = {}
        self._index = NearDuplicates(settings.near_duplicate, self._word_frequencies())
        self._number = 0
        self.near_duplicates = 0
        self._exhausted = ""

    def __next__(self) -> PromptRow:
        round_number, position = divmod(self._number, len(self._order))
        sub = self._order[position]
        split, fill = self._next_fill(sub, self._split(sub, round_number, position))
        row = self._row(sub, split, fill)
        self._number += 1
        return row

    def shortage(self, available: int, wanted: int) -> str:
        banks = ", ".join(self._pack.subcategories[self._exhausted].banks)
        return (
            f"pack {self._pack.name!r} gives {available} distinct prompts balanced over its "
            f"sub-categories, {wanted} were asked: {self._exhausted!r} has no more; add terms to "
            f"its banks ({banks}) or templates that serve it, or ask for fewer"
        )

    def _rotation(self, sub: str, heldout: bool) -> _TemplateRotation:
        rng = _seeded_random(self._settings.seed, self._pack.name, sub, heldout)
        templates = {
            template_id: template
            for template_id, template in self._pack.templates.items()
            if template.heldout == heldout and sub in self._pack.serves[template_id]
        }
        sequences = [
            FillSequence(template_id, template, self._options_of(template, sub), rng)
            for template_id, template in templates.items()
        ]
        return _TemplateRotation(sequences, rng)

    def _options_of(self, template: Template, sub: str) -> dict[tuple[str, int], list[TermChoice]]:
        banks = self._pack.subcategories[sub].banks
        options = {}
        for slot in template.slots:
            key = (slot.source, tuple(banks))
            if key not in self._options:
                self._options[key] = choices(self._pack, slot, banks)
            options[slot.key] = self._options[key]
        return options

    def _word_frequencies(self) -> dict[str, float]:
        """Expected uses of a term's word if every template is used once per sub-category."""
        frequencies: dict[str, float] = defaultdict(float)
        slots: Counter[tuple[str, tuple[str, ...]]] = Counter()
        for template_id, template in self._pack.templates.items():
            for sub in self._pack.serves[template_id]:
                banks = tuple(self._pack.subcategories[sub].banks)
                slots.update((slot.source, banks) for slot in template.slots)
        for key, uses in slots.items():
            for choice in self._options[key]:
                for word in choice.words:
                    frequencies[word] += uses / len(self._options[key])
        return frequencies

    def _split(self, sub: str, round_number: int, position: int) -> Split:
        """The split that is due. Held-out prompts are spread evenly, shifted per sub-category."""
        if self._pack.subcategories[sub].heldout:
            return "heldout_category"
        share, phase = self._settings.heldout_share, position / len(self._order)
        due = math.floor((round_number + 1) * share + phase) > math.floor(
            round_number * share + phase
        )
        return "heldout" if due else "train"

    def _next_fill(self, sub: str, split: Split) -> tuple[Split, TemplateFill]:
        """The next fill of a split, or of train where the held-out templates are used up."""
        for candidate in dict.fromkeys((split, "train" if split == "heldout" else split)):
            key = (sub, candidate == "heldout")
            for fill in self._fills[key]:
                if self._accepts(fill, candidate):
                    self._rotations[key].next_template()
                    return candidate, fill
        self._exhausted = sub
        raise StopIteration

    def _accepts(self, fill: TemplateFill, split: Split) -> bool:
        combination = tuple(sorted(fill.terms))
        if self._split_of.get(combination, split) != split:
            return False
        if split != "heldout_category" and self._is_reserved(combination) != (split == "heldout"):
            return False
        if not self._index.add(fill.content()):
            self.near_duplicates += 1
            return False
        self._split_of[combination] = split
        return True

    def _is_reserved(self, combination: Combination) -> bool:
        """Whether only held-out prompts may use this combination of terms."""
        share = _fraction(self._settings.seed, *combination)
        return self._reserves and share < self._settings.heldout_terms

    def _row(self, sub: str, split: Split, fill: TemplateFill) -> PromptRow:
        suffix = self._suffix(fill)
        text = append_suffix(fill.text(), suffix.text)
        return PromptRow(
            prompt_id=prompt_id(self._pack.name, text, []),
            pack=self._pack.name,
            category=self._pack.category_of[sub],
            subcategory=sub,
            template_id=fill.template_id,
            text=text,
            terms=fill.terms,
            suffix=suffix.name,
            input_images=[],
            shard=shard_name(self._pack.name, self._number // self._settings.shard_size),
            split=split,
        )

    def _suffix(self, fill: TemplateFill) -> Suffix:
        if not fill.template.suffixes:
            return Suffix()
        suffixes = [
            suffix
            for suffix in self._pack.taxonomy.suffixes
            if suffix.only is None or fill.template_id in suffix.only
        ] or [Suffix()]
        bounds = list(itertools.accumulate(suffix.weight for suffix in suffixes))
        point = _fraction(self._settings.seed, fill.template_id, *fill.terms) * bounds[-1]
        return suffixes[bisect(bounds, point)]
