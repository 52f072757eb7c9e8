"""The form of a kind's terms, learned from those that it has and from how templates inflect them.

A proposal is brought into that form where no meaning is at stake (spaces, quotes, an article, a
capital at the beginning); else it is said what is wrong with it.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property

from ..pack import Term
from ..template_fills import content_words
from .usage import Use

_MORE_CHARACTERS, _MORE_WORDS = 10, 1  # than the longest term that is there
_ARTICLE = re.compile(r"(?:an?|the) ", re.IGNORECASE)
_LEAD = re.compile(r"^(?:[-*\u2022] +|\d+[.)] *)")
_QUOTES = "\"'\u201c\u201d\u2018`"
_VERB_FORMS, _NOUN_FORMS = {"gerund", "third", "past"}, {"a", "plural"}
# What may follow the noun that is inflected: `robot with a tray`.
_PREPOSITIONS = {"of", "with", "without", "in", "on", "at", "for", "from", "to", "by", "near"}
_AFTER_THE_NOUN = _PREPOSITIONS | {"and", "who", "that"}


class TermFormat:
    """The form of one kind of one bank.

    Args:
        terms: those that it has, of which some are plain.
    """

    def __init__(self, terms: Sequence[Term], uses: set[Use]) -> None:
        self._terms = [term for term in terms if not term.slots]
        self._texts = [term.term for term in self._terms]
        self._forms = {use.form for use in uses}

    def normal(self, proposed: str) -> str:
        """The proposal as the bank would spell it."""
        text = unicodedata.normalize("NFKC", proposed).replace("\u2019", "'")
        text = _LEAD.sub("", " ".join(text.split())).strip(_QUOTES).rstrip(".,;:!?").strip()
        if not any(map(_ARTICLE.match, self._texts)):
            text = _ARTICLE.sub("", text, count=1) if _ARTICLE.match(text) else text
        if self._capitals == "all":
            return text.upper()
        return text[:1].lower() + text[1:] if self._capitals == "none" else text

    def fixed(self, countable: bool) -> bool:
        """Whether a term of this kind takes no article and no plural."""
        return not countable or all(term.fixed for term in self._terms)

    def fault(self, term: str, fixed: bool) -> str | None:
        """What keeps a term, as `normal` spells it, from standing where the others do."""
        return next(self._faults(term, fixed), None)

    def _faults(self, term: str, fixed: bool) -> Iterator[str]:
        if strange := sorted(set(term) - self._characters):
            yield f"has {' '.join(strange)}, which no term of its kind has"
        if not content_words(term):
            yield "says nothing"
        if len(term) > self._most_characters:
            yield f"is longer than {self._most_characters} characters"
        if len(term.split()) > self._most_words:
            yield f"has more than {self._most_words} words"
        if self._capitals == "none" and term != term.lower():
            yield "has capitals, which no term of its kind has"
        if all(map(_ARTICLE.match, self._texts)) and not _ARTICLE.match(term):
            yield "has no article, as every term of its kind has"
        yield from self._inflection_faults(term, fixed)

    def _inflection_faults(self, term: str, fixed: bool) -> Iterator[str]:
        if self._forms & _VERB_FORMS and not _is_base_verb(term.split()[0]):
            yield "does not begin with a verb in its base form, which templates inflect"
        if self._forms & _NOUN_FORMS and not fixed and _is_plural(_noun(term)):
            yield "is a plural; templates write article and plural themselves"

    @cached_property
    def _characters(self) -> set[str]:
        """Letters, and whatever else stands in a term that is there."""
        letters = {chr(code) for code in range(0x250) if chr(code).isalpha()}
        return letters.union(" -'", *self._texts)

    @property
    def _most_characters(self) -> int:
        return max(map(len, self._texts)) + _MORE_CHARACTERS

    @property
    def _most_words(self) -> int:
        return max(len(text.split()) for text in self._texts) + _MORE_WORDS

    @cached_property
    def _capitals(self) -> str:
        if all(text == text.lower() for text in self._texts):
            return "none"
        return "all" if all(text == text.upper() for text in self._texts) else "some"


def _noun(term: str) -> str:
    """The word that takes the plural."""
    words = term.lower().split()
    ends = [index for index, word in enumerate(words) if word in _AFTER_THE_NOUN and index]
    return words[ends[0] - 1 if ends else -1]


def _is_plural(noun: str) -> bool:
    """Whether the dictionary says so; of a word that it lacks, its rules for those in `s`."""
    from lemminflect import getAllLemmas, getLemma

    known = getAllLemmas(noun)
    if not known:
        return noun.endswith("s") and noun not in getLemma(noun, "NOUN")
    # Latin plurals: `harmonica` is no harmonicon.
    return "NOUN" in known and noun not in known["NOUN"] and not noun.endswith("a")


def _is_base_verb(word: str) -> bool:
    """Whether the dictionary says so; a word that it lacks may be one."""
    from lemminflect import getAllLemmas

    known = getAllLemmas(word)
    return word in known["VERB"] if "VERB" in known else not known
