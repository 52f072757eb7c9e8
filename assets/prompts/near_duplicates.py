"""Finds near-duplicates among prompts as they come in, exactly and in about linear time.

A prompt is two sets of words: its subject (the words of its terms) and all of its words. Comparing
the subjects as well keeps "split the word SUN into ..." and "split the word MOON into ..." apart,
however long the rest that they share.

With words in one fixed order, two sets of Jaccard similarity >= t share a word among the first
|x| - ceil(t|x|) + 1 of each (prefix filtering: Chaudhuri et al. 2006, Bayardo et al. 2007). Rare
words come first in that order, so a prompt is compared with few others only.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

_THRESHOLD = 0.8  # Jaccard similarity from which prompts are near-duplicates
Words = frozenset[str]
_ROUNDING = 1e-9


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
