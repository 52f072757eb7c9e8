"""Whether a proposed term has the form of its kind, and whether the pack's world understands it.

The form of a kind is learned from its terms and from how templates inflect them. A proposal is
brought into that form where that cannot change its meaning (spaces, quotes, an article, an initial
capital); other differences are reported. The world is `reader` in the pack's taxonomy.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from typing import NamedTuple

from inference.sketch_world.request_parser import RequestText
from inference.sketch_world.story_catalog import choose_story, load_stories

from .pack import Pack, Term
from .template_fills import choices, content_words, fill_sequence

_MORE_CHARACTERS, _MORE_WORDS = 10, 1  # allowed beyond the longest term of the kind
_LETTERS = {chr(code) for code in range(0x250) if chr(code).isalpha()}
_ARTICLE = re.compile(r"^(?:an?|the) ", re.IGNORECASE)
_LIST_MARKER = re.compile(r"^(?:[-*\u2022] +|\d+[.)] *)")
_QUOTES = "\"'\u201c\u201d\u2018`"
_VERB_FORMS, _NOUN_FORMS = {"gerund", "third", "past"}, {"a", "plural"}
# What may follow the noun that is inflected: `robot with a tray`.
_PREPOSITIONS = {"of", "with", "without", "in", "on", "at", "for", "from", "to", "by", "near"}
_AFTER_THE_NOUN = _PREPOSITIONS | {"and", "who", "that"}
_MAX_TEMPLATES = 3  # tried per sub-category
_MAX_FILLS = 20  # tried per template, to find one with the term

Source = tuple[str, str]  # bank and kind


class Use(NamedTuple):
    """A slot that a term may fill, directly or within another term."""

    subcategory: str
    template_id: str
    form: str | None


class TermFormat:
    """The form of one kind of one bank, at least one of whose terms has no slots."""

    def __init__(self, terms: Sequence[Term], uses: set[Use]) -> None:
        plain = [term for term in terms if not term.slots]
        texts = [term.term for term in plain]
        self._forms = {use.form for use in uses}
        self.all_fixed = all(term.fixed for term in plain)
        self._articles = {bool(_ARTICLE.match(text)) for text in texts}
        self._all_lower = all(text == text.lower() for text in texts)
        self._all_upper = all(text == text.upper() for text in texts)
        self._characters = _LETTERS.union(" -'", *texts)
        self._max_characters = max(map(len, texts)) + _MORE_CHARACTERS
        self._max_words = max(len(text.split()) for text in texts) + _MORE_WORDS

    def normalize(self, proposed: str) -> str:
        """The proposal as the bank would spell it."""
        text = unicodedata.normalize("NFKC", proposed).replace("\u2019", "'")
        text = _LIST_MARKER.sub("", " ".join(text.split())).strip(_QUOTES).rstrip(".,;:!?").strip()
        if True not in self._articles:
            text = _ARTICLE.sub("", text)
        if self._all_lower:
            return text[:1].lower() + text[1:]
        return text.upper() if self._all_upper else text

    def fault(self, term: str, fixed: bool) -> str | None:
        """How a normalized term differs from the kind's form; None: it does not."""
        return next(self._faults(term, fixed), None)

    def _faults(self, term: str, fixed: bool) -> Iterator[str]:
        if strange := sorted(set(term) - self._characters):
            yield f"has {' '.join(strange)}, which no term of its kind has"
        if not content_words(term):
            yield "says nothing"
        if len(term) > self._max_characters:
            yield f"is longer than {self._max_characters} characters"
        if len(term.split()) > self._max_words:
            yield f"has more than {self._max_words} words"
        if self._all_lower and term != term.lower():
            yield "has capitals, which no term of its kind has"
        if False not in self._articles and not _ARTICLE.match(term):
            yield "has no article, as every term of its kind has"
        if self._forms & _VERB_FORMS and not _is_base_verb(term.split()[0]):
            yield "does not begin with a verb in its base form, which templates inflect"
        if self._forms & _NOUN_FORMS and not fixed and _is_plural(_head_noun(term)):
            yield "is a plural; templates write article and plural themselves"


def _head_noun(term: str) -> str:
    words = term.lower().split()
    ends = [index for index, word in enumerate(words) if word in _AFTER_THE_NOUN and index]
    return words[ends[0] - 1 if ends else -1]


def _is_plural(noun: str) -> bool:
    """Looked up in the dictionary; for unknown words its rule for nouns in `s`."""
    from lemminflect import getAllLemmas, getLemma

    lemmas = getAllLemmas(noun)
    if not lemmas:
        return noun.endswith("s") and noun not in getLemma(noun, "NOUN")
    # Latin plurals in -a are ambiguous: `harmonica` is no plural of harmonicon.
    return "NOUN" in lemmas and noun not in lemmas["NOUN"] and not noun.endswith("a")


def _is_base_verb(word: str) -> bool:
    """Looked up in the dictionary; unknown words may be verbs."""
    from lemminflect import getAllLemmas

    lemmas = getAllLemmas(word)
    return word in lemmas["VERB"] if "VERB" in lemmas else not lemmas


def world_fault(pack: Pack, source: Source, term: Term, uses: set[Use]) -> str | None:
    """Why the pack's world cannot use a term of a source; None: it can.

    A term must name objects that its kind names, and requests with it must fit their story.
    """
    if pack.taxonomy.reader != "sketch":
        return None
    bank, kind = source
    siblings = [_names_in(other.term) for other in pack.banks[bank][kind] if not other.slots]
    names, known = _names_in(term.term), frozenset[str]().union(*siblings)
    if names - known:
        return f"names {', '.join(sorted(names - known))}, which no term of its kind does"
    if all(siblings) and not names:
        return "names nothing that the sketch world knows"
    for text, story in _example_requests(pack, source, term, uses):
        if choose_story(RequestText(text)) is not load_stories()[story]:
            return f"the sketch world does not take {text!r} for {story}"
    return None


def _names_in(text: str) -> frozenset[str]:
    return frozenset(f"{mention.sort} {mention.name}" for mention in RequestText(text).mentions)


def _example_requests(
    pack: Pack, source: Source, term: Term, uses: set[Use]
) -> Iterator[tuple[str, str]]:
    """Some requests with the term, and the sub-category of each."""
    bank, kind = source
    banks = {**pack.banks, bank: {**pack.banks[bank], kind: [term]}}
    changed = Pack(pack.name, pack.taxonomy, banks, pack.templates)
    for sub in sorted({use.subcategory for use in uses}):
        templates = sorted({use.template_id for use in uses if use.subcategory == sub})
        for template_id in templates[:_MAX_TEMPLATES]:
            if text := _example_request(changed, sub, template_id, term):
                yield text, sub


def _example_request(pack: Pack, sub: str, template_id: str, term: Term) -> str | None:
    template, banks = pack.templates[template_id], pack.subcategories[sub].banks
    options = {slot.key: choices(pack, slot, banks, template.without) for slot in template.slots}
    if not all(options.values()):  # needs two terms of the kind, which has only one
        return None
    fills = fill_sequence(template_id, template, options, Random(template_id))
    with_term = (fill for fill in islice(fills, _MAX_FILLS) if term.term in fill.terms)
    return next((fill.text() for fill in with_term), None)
