"""The prompt bank: an endless, reproducible sequence of prompts from a pack, cut into shards.

Sub-categories take turns in a fixed order, so every stretch of the sequence is balanced over them.
Prompt number k depends only on the pack, the seed and the prompts before it: a bank that grows
keeps its full shards.

A near-duplicate of an earlier prompt of any split is left out (see `NearDuplicates`): only content
words in their base form count, no numbers and no suffix. "How to fold a boat" and "How do I fold a
boat?" are one prompt.

Held-out prompts never share with training prompts
- a template or a combination of terms (split `heldout`): some templates are marked in the pack,
  and a share of all combinations, chosen by hash, is reserved for them;
- a sub-category or a combination of terms (split `heldout_category`): sub-categories are marked in
  the pack. They use the templates of training, so that only the subject is new.

Templates with input images take the place of a share of the prompts that the others make, so that
with or without them the bank's other prompts are the same.
"""

import itertools
import math
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from random import Random

from schemas import FoundryError
from schemas.prompts import PromptRow, Split

from .file_pack import FileBank
from .pack import Pack, Suffix, Template, TemplateSlot, prompt_id, shard_name
from .rounds import TrainStretch, stretch_at
from .settings import BankSettings
from .template_fills import (
    NearDuplicates,
    TemplateFill,
    TermChoice,
    append_suffix,
    choices,
    fill_sequence,
)

_HELDOUT_TERMS = 0.15  # of all combinations, reserved for held-out prompts


def open_bank(
    pack: Pack, settings: BankSettings, count: int, stretches: Sequence[TrainStretch] = ()
) -> "PromptBank | FileBank":
    """The first `count` prompts of a pack; raises what its bank does."""
    return (FileBank if pack.prompts else PromptBank)(pack, settings, count, stretches)


def generate_bank(pack: Pack, settings: BankSettings, count: int) -> list[PromptRow]:
    return open_bank(pack, settings, count).prompts


def _fraction(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    digest = sha256("\n".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


@dataclass
class _TemplateRotation:
    """The templates of a sub-category take turns in random order, each until it has no more fills.

    A turn ends with the first fill that is accepted. Those for composite pictures take part in a
    share of the rounds, as long as there are others. `sequences` and `composites`: by template.
    """

    sequences: dict[str, Iterator[TemplateFill]]
    composites: dict[str, Iterator[TemplateFill]]
    composite_turns: float
    rng: Random
    _round: list[str] = field(default_factory=list)

    def next_fill(
        self, accepts: Callable[[TemplateFill], bool], stretch: TrainStretch | None = None
    ) -> TemplateFill | None:
        while self.sequences or self.composites:
            self._round = self._round or self._next_round()
            template = self._round.pop()
            if stretch and self.rng.random() >= self._share(template, stretch):
                continue
            group = self.sequences if template in self.sequences else self.composites
            if fill := next(filter(accepts, group[template]), None):
                return fill
            del group[template]
        return None

    def _next_round(self) -> list[str]:
        chosen = [each for each in self.composites if self.rng.random() < self.composite_turns]
        members = [*self.sequences, *chosen] if self.sequences else [*self.composites]
        return self.rng.sample(members, len(members))

    def _share(self, template: str, stretch: TrainStretch) -> float:
        """Of its turns, those that a template takes in a stretch: all of the one of most weight."""
        weights = [stretch.weight(each) for each in (*self.sequences, *self.composites)]
        return stretch.weight(template) / max(weights)


class PromptBank:
    """The first `count` prompts of a pack, and how many near-duplicates of them were left out.

    Raises FoundryError: the pack cannot give as many distinct prompts.
    """

    def __init__(
        self, pack: Pack, settings: BankSettings, count: int, stretches: Sequence[TrainStretch] = ()
    ) -> None:
        self._pack, self._settings, self._stretches = pack, settings, stretches
        self._order = self._random().sample(list(pack.subcategories), len(pack.subcategories))
        self._options: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[TermChoice]] = {}
        self._rotations = {
            key: self._rotation(*key)
            for key in itertools.product(self._order, (False, True), (False, True))
        }
        self._reserves = any(template.heldout for template in pack.templates.values())
        self._split_of: dict[tuple[str, ...], Split] = {}
        self._index = NearDuplicates(self._word_frequencies())
        self._due = {each.start: each.subcategories(pack, self._order) for each in stretches}
        self.near_duplicates = 0
        self.prompts = [self._prompt(number, count) for number in range(count)]

    def _prompt(self, number: int, count: int) -> PromptRow:
        stretch = stretch_at(self._stretches, number)
        round_number, position = divmod(number, len(self._order))
        sub = next(self._due[stretch.start]) if stretch else self._order[position]
        split = "train" if stretch else self._split(sub, round_number, position)
        chosen = self._next_fill(sub, split, stretch)
        share = _fraction(self._settings.seed, "input images", number)
        if chosen is None or share < self._settings.input_image_share:
            due = chosen[0] if chosen else split
            chosen = self._next_fill(sub, due, stretch, with_images=True) or chosen
        if chosen:
            return self._row(number, sub, *chosen)
        banks = ", ".join(self._pack.subcategories[sub].banks)
        raise FoundryError(
            f"pack {self._pack.name!r} gives {number} distinct prompts balanced over its "
            f"sub-categories, {count} were asked: {sub!r} has no more; add terms to "
            f"its banks ({banks}) or templates that serve it, or ask for fewer"
        )

    def _random(self, *parts: object) -> Random:
        seed = "/".join(map(str, (self._settings.seed, self._pack.name, *parts)))
        return Random(sha256(seed.encode()).digest())

    def _rotation(self, sub: str, heldout: bool, with_images: bool) -> _TemplateRotation:
        rng = self._random(sub, heldout, *(["input images"] if with_images else []))
        sequences: dict[bool, dict[str, Iterator[TemplateFill]]] = {False: {}, True: {}}
        for template_id, template in self._pack.templates.items():
            marks = template.heldout, bool(template.input_images)
            if marks == (heldout, with_images) and sub in self._pack.serves[template_id]:
                options = {slot.key: self._choices(slot, sub, template) for slot in template.slots}
                fills = fill_sequence(template_id, template, options, rng)
                sequences[template.composite][template_id] = fills
        turns = self._settings.composite_turns
        return _TemplateRotation(sequences[False], sequences[True], turns, rng)

    def _choices(self, slot: TemplateSlot, sub: str, template: Template) -> list[TermChoice]:
        banks = self._pack.subcategories[sub].banks
        key = slot.source, tuple(banks), template.without
        if key not in self._options:
            self._options[key] = choices(self._pack, slot, banks, template.without)
        return self._options[key]

    def _word_frequencies(self) -> dict[str, float]:
        """Expected uses of a term's word if every template is used once per sub-category."""
        slots = Counter(
            (slot.source, tuple(self._pack.subcategories[sub].banks), template.without)
            for template_id, template in self._pack.templates.items()
            for sub in self._pack.serves[template_id]
            for slot in template.slots
        )
        frequencies: dict[str, float] = defaultdict(float)
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
        before, after = (math.floor(n * share + phase) for n in (round_number, round_number + 1))
        return "heldout" if after > before else "train"

    def _next_fill(
        self, sub: str, split: Split, stretch: TrainStretch | None, with_images: bool = False
    ) -> tuple[Split, TemplateFill] | None:
        """The next fill of a split, or of train where the held-out templates are used up."""
        candidates: list[Split] = [split]
        if split == "heldout" and not with_images:
            candidates.append("train")
        for candidate in candidates:
            rotation = self._rotations[sub, candidate == "heldout", with_images]
            if fill := rotation.next_fill(partial(self._accepts, candidate), stretch):
                return candidate, fill
        return None

    def _accepts(self, split: Split, fill: TemplateFill) -> bool:
        combination, settings = tuple(sorted(fill.terms)), self._settings
        if self._split_of.get(combination, split) != split:
            return False
        # Only held-out prompts may use a reserved combination.
        share = _fraction(settings.seed, *combination)
        reserved = self._reserves and share < _HELDOUT_TERMS
        if split != "heldout_category" and reserved != (split == "heldout"):
            return False
        if not self._index.add(fill.content()):
            self.near_duplicates += 1
            return False
        self._split_of[combination] = split
        return True

    def _row(self, number: int, sub: str, split: Split, fill: TemplateFill) -> PromptRow:
        suffix = self._suffix(fill)
        text, images = append_suffix(fill.text(), suffix.text), fill.input_image_texts()
        return PromptRow(
            prompt_id=prompt_id(self._pack.name, "\n".join([text, *images])),
            pack=self._pack.name,
            category=self._pack.category_of[sub],
            subcategory=sub,
            template_id=fill.template_id,
            text=text,
            terms=fill.terms,
            suffix=suffix.name,
            input_images=[],
            shard=shard_name(self._pack.name, number // self._settings.shard_size),
            split=split,
            input_image_texts=images or None,
        )

    def _suffix(self, fill: TemplateFill) -> Suffix:
        suffixes = [
            suffix
            for suffix in self._pack.taxonomy.suffixes
            if fill.template.suffixes and (suffix.only is None or fill.template_id in suffix.only)
        ] or [Suffix()]
        bounds = list(itertools.accumulate(suffix.weight for suffix in suffixes))
        point = _fraction(self._settings.seed, fill.template_id, *fill.terms) * bounds[-1]
        return suffixes[bisect(bounds, point)]
