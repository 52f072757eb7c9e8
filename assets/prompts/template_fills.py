"""All ways to fill a template for a sub-category, in an order that looks random.

A template with slots of n1, n2, ... choices has N = n1 * n2 * ... fills. `fill_sequence` visits
them as k -> (a * k + b) mod N with a coprime to N: every fill exactly once, in constant memory.

A slot may ask for a form of its term. Nouns follow `inflect`, verbs the word list of `lemminflect`;
a term's own forms in its bank come first. A verb phrase starts with one or two verbs: `make a kite`
-> `making a kite`, `wash and dry a plate` -> `washing and drying a plate`.

Near-duplicates are found as prompts come in, exactly and in about linear time. A prompt is two sets
of words: its subject (the words of its terms) and all of its words. Comparing the subjects as well
keeps "split the word SUN into ..." and "split the word MOON into ..." apart, however long the rest
that they share. With words in one fixed order, two sets of Jaccard similarity >= t share a word
among the first |x| - ceil(t|x|) + 1 of each (prefix filtering: Chaudhuri et al. 2006, Bayardo et
al. 2007). Rare words come first in that order, so a prompt is compared with few others only.
"""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from .pack import Pack, SlotKey, Template, TemplateSlot, Term, parse

if TYPE_CHECKING:
    from inflect import engine

# Function words say nothing about a prompt's subject. Numbers are among them, so that "in three
# pictures" and "in four pictures" are the same prompt.
_FUNCTION_WORDS = """
a an and are as at be but by can could do does for from has have how i if in into is it its me my of
on or out please so some somebody someone that the their then there these they this to was what when
where while who will with would you your
one two three four five six seven eight nine ten
"""
_STOP_WORDS = frozenset(_FUNCTION_WORDS.split())

_VERB_TAGS = {"gerund": "VBG", "third": "VBZ", "past": "VBD"}

# A term with two slots has hundreds of fills, which would crowd out the other terms of its bank.
_MAX_CHOICES = 60

Words = frozenset[str]
_THRESHOLD = 0.8  # Jaccard similarity from which prompts are near-duplicates
_ROUNDING = 1e-9


@cache
def content_words(text: str) -> frozenset[str]:
    """The words of a text but its function words, in lower case."""
    return frozenset(re.findall(r"[^\W_]+(?:['’][^\W_]+)?", text.lower())) - _STOP_WORDS


@cache
def literal_text(text: str) -> str:
    """A text without its slots."""
    return " ".join(piece for piece in parse(text) if isinstance(piece, str))


class Content(NamedTuple):
    """What a prompt is about: the words of its terms, and all of its words."""

    subject: Words
    words: Words


class NearDuplicates:
    """An index of prompts: near-duplicates have a Jaccard similarity of 0.8 or more of both sets.

    `frequencies` are expected uses of a word; unknown words count as the most frequent.
    """

    def __init__(self, frequencies: Mapping[str, float]) -> None:
        self._frequencies = frequencies
        # (word, size of the subject) -> prompts
        self._index: dict[tuple[str, int], list[Content]] = defaultdict(list)

    def add(self, content: Content) -> bool:
        """Add a prompt unless it is a near-duplicate of an earlier one; whether it was added."""
        subject, words = content
        size = len(subject)
        smallest = math.ceil(_THRESHOLD * size - _ROUNDING)
        largest = int(size / _THRESHOLD + _ROUNDING)
        ordered = sorted(subject, key=lambda word: (self._frequencies.get(word, math.inf), word))
        prefix = ordered[: size - smallest + 1]
        near = (
            other
            for word in prefix
            for other_size in range(smallest, largest + 1)
            for other in self._index.get((word, other_size), ())
        )
        if any(self._similar(subject, s) and self._similar(words, w) for s, w in near):
            return False
        for word in prefix:
            self._index[word, size].append(content)
        return True

    def _similar(self, one: Words, other: Words) -> bool:
        shared = len(one & other)
        return shared >= _THRESHOLD * (len(one) + len(other) - shared) - _ROUNDING


@dataclass(frozen=True)
class TermChoice:
    """A term for a slot, with the terms of its own slots."""

    term: Term
    inner: "Choices" = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The texts of the terms, without inflection."""
        return (self.term.term, *dict.fromkeys(c.term.term for c in self.inner.values()))

    @cached_property
    def words(self) -> frozenset[str]:
        """Content words in their base forms."""
        inner = (choice.words for choice in self.inner.values())
        return content_words(literal_text(self.term.term)).union(*inner)

    def text(self, form: str | None) -> str:
        if form and (explicit := getattr(self.term, form)) is not None:
            return _render(explicit, self.inner)
        return apply_form(_render(self.term.term, self.inner), form, self.term.fixed)


Choices = Mapping[SlotKey, TermChoice]


@dataclass(frozen=True)
class TemplateFill:
    """A template with a choice for each of its slots."""

    template_id: str
    template: Template
    choices: Choices

    @property
    def terms(self) -> list[str]:
        return [name for choice in self.choices.values() for name in choice.names]

    def text(self) -> str:
        text = _render(self.template.text, self.choices)
        return text[:1].upper() + text[1:]

    def input_image_texts(self) -> list[str]:
        """What each picture shows that comes with the prompt."""
        return [_render(text, self.choices) for text in self.template.input_images]

    def content(self) -> Content:
        """Content words of the template and its terms, for `NearDuplicates`."""
        subject = frozenset[str]().union(*(choice.words for choice in self.choices.values()))
        return Content(subject, subject | content_words(literal_text(self.template.text)))


def _render(text: str, chosen: Choices) -> str:
    return "".join(
        piece if isinstance(piece, str) else chosen[piece.key].text(piece.form)
        for piece in parse(text)
    )


def choices(
    pack: Pack, slot: TemplateSlot, banks: list[str], without: Sequence[str] = ()
) -> list[TermChoice]:
    """Every choice for a slot; a term with slots of its own counts once per fill of those.

    `without`: terms that the slot's text excludes.
    """
    return [
        choice
        for bank in slot.banks(banks)
        for term in pack.terms(slot, [bank], without)
        for choice in _choices_of_term(pack, term, bank)
    ]


def _choices_of_term(pack: Pack, term: Term, bank: str) -> list[TermChoice]:
    inner = {slot.key: slot for slot in term.slots}
    options = [
        [TermChoice(each) for each in pack.terms(slot, [bank], term.without)]
        for slot in inner.values()
    ]
    fills = [dict(zip(inner, fill, strict=True)) for fill in itertools.product(*options)]
    fills = [fill for fill in fills if _distinct(fill)]
    return [TermChoice(term, fill) for fill in fills[:: math.ceil(len(fills) / _MAX_CHOICES) or 1]]


def _distinct(chosen: Choices) -> bool:
    """Whether slots of one source but different numbers hold different terms."""
    return len({(source, choice.names) for (source, _), choice in chosen.items()}) == len(chosen)


def fill_sequence(
    template_id: str, template: Template, options: Mapping[SlotKey, list[TermChoice]], rng: Random
) -> Iterator[TemplateFill]:
    """Every fill of a template once, in an order set by `rng`, which is used at once."""
    total = math.prod(map(len, options.values()))
    start, stride = rng.randrange(total), _coprime(total, rng)
    fills = (_decode((start + number * stride) % total, options) for number in range(total))
    return (TemplateFill(template_id, template, fill) for fill in fills if _distinct(fill))


def _decode(index: int, options: Mapping[SlotKey, list[TermChoice]]) -> Choices:
    chosen = {}
    for key, candidates in options.items():
        index, digit = divmod(index, len(candidates))
        chosen[key] = candidates[digit]
    return chosen


def _coprime(total: int, rng: Random) -> int:
    """A stride that visits all of range(total); large, so that successive fills differ."""
    while True:
        stride = rng.randrange(total // 4, total) or 1
        if math.gcd(stride, total) == 1:
            return stride


@cache
def apply_form(phrase: str, form: str | None, fixed: bool = False) -> str:
    """Inflect a base phrase to a form of `pack.Form`; `fixed`: no article and no plural."""
    if form in _VERB_TAGS:
        return _inflect_verb_phrase(phrase, _VERB_TAGS[form])
    if form is None or fixed:
        return phrase
    if form == "a":
        return str(_engine().a(phrase))
    return f"the {phrase}" if form == "the" else str(_engine().plural_noun(phrase))


def append_suffix(text: str, suffix: str) -> str:
    """Add a suffix: as a sentence of its own if it is capitalised, else within the last one."""
    if not suffix:
        return text
    bare, end = (text[:-1], text[-1]) if text[-1] in ".?!" else (text, "")
    if suffix[0].isupper():
        return f"{bare}{end or '.'} {suffix}"
    return f"{bare} {suffix}{end}"


def _inflect_verb_phrase(phrase: str, tag: str) -> str:
    from lemminflect import getInflection

    words = phrase.split(" ")
    for position in (0, 2) if words[1:2] == ["and"] else (0,):
        words[position] = getInflection(words[position], tag=tag)[0]
    return " ".join(words)


@cache
def _engine() -> "engine":
    """inflect without its type checks: typeguard takes 6 s to compile them on every import."""
    import typeguard

    typechecked = typeguard.typechecked
    typeguard.typechecked = lambda function: function  # type: ignore[assignment]
    try:
        import inflect
    finally:
        typeguard.typechecked = typechecked
    return inflect.engine()
