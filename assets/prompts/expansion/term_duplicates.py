"""Finds the term that a proposal repeats: in other letters, another number, nearly the same words.

Words are compared by their base forms, so that `Cats`, `cat` and `the cat` are one term.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ..template_fills import content_words, literal

Words = frozenset[str]


class KnownTerm(NamedTuple):
    """A term that is there already."""

    bank: str
    kind: str
    term: str

    def __str__(self) -> str:
        return f"`{self.term}` of {self.bank}.{self.kind}"


class KnownTerms:
    """Terms by their words.

    Args:
        near_duplicate: Jaccard similarity from which two terms are the same.
    """

    def __init__(self, near_duplicate: float) -> None:
        self._threshold = near_duplicate
        self._by_word: dict[str, list[tuple[Words, KnownTerm]]] = defaultdict(list)

    def add(self, known: KnownTerm) -> None:
        words = base_words(known.term)
        for word in words:
            self._by_word[word].append((words, known))

    def twin(self, term: str) -> KnownTerm | None:
        """The most similar term, if it is similar enough; of equals the first."""
        words = base_words(term)
        similar = ((_jaccard(words, other), known) for other, known in self._sharing(words))
        best = max(similar, key=lambda pair: pair[0], default=None)
        return best[1] if best and best[0] >= self._threshold else None

    def within(self, term: str) -> KnownTerm | None:
        """A term whose words all occur in this one."""
        words = base_words(term)
        return next((known for other, known in self._sharing(words) if other <= words), None)

    def _sharing(self, words: Words) -> Iterator[tuple[Words, KnownTerm]]:
        return (entry for word in sorted(words) for entry in self._by_word.get(word, ()))


def base_words(term: str) -> Words:
    """The content words of a term without its slots, each in one base form."""
    return frozenset(map(_base, content_words(re.sub("[-_]", " ", literal(term)))))


@cache
def _base(word: str) -> str:
    """The first by the alphabet of all base forms: `leaves` is one of leaf and leave."""
    from lemminflect import getAllLemmas, getLemma

    found = {lemma for lemmas in getAllLemmas(word).values() for lemma in lemmas}
    return min(found or getLemma(word, "NOUN"), default=word).lower()


def _jaccard(one: Words, other: Words) -> float:
    return len(one & other) / len(one | other)
