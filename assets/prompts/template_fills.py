"""All ways to fill a template for a sub-category, in an order that looks random.

A template with slots of n1, n2, ... choices has N = n1 * n2 * ... fills. A `FillSequence` visits
them as k -> (a * k + b) mod N with a coprime to N: every fill exactly once, in constant memory.
"""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from random import Random

from .english import apply_form, capitalize
from .near_duplicates import Content
from .pack import Pack, Template, TemplateSlot, Term, parse

# Function words say nothing about a prompt's subject. Numbers are among them, so that "in three
# pictures" and "in four pictures" are the same prompt.
_FUNCTION_WORDS = """
a an and are as at be but by can could do does for from has have how i if in into is it its me my of
on or out please so some somebody someone that the their then there these they this to was what when
where while who will with would you your
one two three four five six seven eight nine ten
"""
_STOP_WORDS = frozenset(_FUNCTION_WORDS.split())

# A term with two slots has hundreds of fills, which would crowd out the other terms of its bank.
_MAX_CHOICES = 60


@cache
def content_words(text: str) -> frozenset[str]:
    """The words of a text but its function words, in lower case."""
    return frozenset(re.findall(r"[^\W_]+(?:['’][^\W_]+)?", text.lower())) - _STOP_WORDS


def literal_text(text: str) -> str:
    """A text without its slots."""
    return " ".join(piece for piece in parse(text) if isinstance(piece, str))


@dataclass(frozen=True)
class TermChoice:
    """A term for a slot, with the terms of its own slots."""

    term: Term
    inner: tuple[tuple[TemplateSlot, Term], ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The texts of the terms, without inflection."""
        return (self.term.term, *dict.fromkeys(term.term for _, term in self.inner))

    @cached_property
    def words(self) -> frozenset[str]:
        """Content words in their base forms."""
        inner = (content_words(term.term) for _, term in self.inner)
        return content_words(literal_text(self.term.term)).union(*inner)

    def text(self, form: str | None) -> str:
        explicit = getattr(self.term, form) if form else None
        if explicit is not None:
            return self._fill(explicit)
        return apply_form(self._fill(self.term.term), form, self.term.fixed)

    def _fill(self, text: str) -> str:
        if not self.inner:
            return text
        by_key = {slot.key: term for slot, term in self.inner}
        return "".join(
            piece if isinstance(piece, str) else TermChoice(by_key[piece.key]).text(piece.form)
            for piece in parse(text)
        )


@dataclass(frozen=True)
class TemplateFill:
    """A template with a choice for each of its slots."""

    template_id: str
    template: Template
    choices: dict[tuple[str, int], TermChoice]

    @property
    def terms(self) -> list[str]:
        return [name for choice in self.choices.values() for name in choice.names]

    def text(self) -> str:
        pieces = parse(self.template.text)
        return capitalize(
            "".join(
                piece if isinstance(piece, str) else self.choices[piece.key].text(piece.form)
                for piece in pieces
            )
        )

    def content(self) -> Content:
        """Content words of the template and its terms, for `NearDuplicates`."""
        subject = frozenset[str]().union(*(choice.words for choice in self.choices.values()))
        return Content(subject, subject | content_words(literal_text(self.template.text)))


def choices(pack: Pack, slot: TemplateSlot, banks: list[str]) -> list[TermChoice]:
    """Every choice for a slot; a term with slots of its own counts once per fill of those."""
    return [
        choice
        for bank in ([slot.bank] if slot.bank else banks)
        for term in pack.banks.get(bank, {}).get(slot.kind, [])
        for choice in _choices_of_term(pack, term, bank)
    ]


def _choices_of_term(pack: Pack, term: Term, bank: str) -> list[TermChoice]:
    inner = list({slot.key: slot for slot in term.slots}.values())
    options = [pack.terms(slot, [bank]) for slot in inner]
    fills = [tuple(zip(inner, terms, strict=True)) for terms in itertools.product(*options)]
    fills = [fill for fill in fills if _distinct([(slot.source, t.term) for slot, t in fill])]
    return [TermChoice(term, fill) for fill in fills[:: math.ceil(len(fills) / _MAX_CHOICES)]]


def _distinct(filled: Sequence[tuple[str, object]]) -> bool:
    """Whether slots of one source but different numbers hold different terms."""
    return len(set(filled)) == len(filled)


class FillSequence(Iterator[TemplateFill]):
    """Every fill of a template once, in an order set by `rng`."""

    def __init__(
        self,
        template_id: str,
        template: Template,
        options: dict[tuple[str, int], list[TermChoice]],
        rng: Random,
    ) -> None:
        self._template_id, self._template, self._options = template_id, template, options
        self._total = math.prod(len(choices) for choices in options.values())
        self._start = rng.randrange(self._total)
        self._stride = _coprime(self._total, rng)
        self._visited = 0

    def __next__(self) -> TemplateFill:
        while self._visited < self._total:
            index = (self._start + self._visited * self._stride) % self._total
            self._visited += 1
            chosen = self._decode(index)
            if _distinct([(key[0], choice.names) for key, choice in chosen.items()]):
                return TemplateFill(self._template_id, self._template, chosen)
        raise StopIteration

    def _decode(self, index: int) -> dict[tuple[str, int], TermChoice]:
        chosen = {}
        for key, choices in self._options.items():
            index, digit = divmod(index, len(choices))
            chosen[key] = choices[digit]
        return chosen


def _coprime(total: int, rng: Random) -> int:
    """A stride that visits all of range(total); large, so that successive fills differ."""
    while True:
        stride = rng.randrange(total // 4, total) or 1
        if math.gcd(stride, total) == 1:
            return stride
