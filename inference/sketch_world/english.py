"""Common words of English by what they say about nouns, from `english.yaml`."""

from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

import yaml


@dataclass(frozen=True)
class Vocabulary:
    """Words of English by what they say about nouns.

    Args:
        openers: a noun may follow.
        separators: no nouns, adjectives or adverbs: openers, verbs, pronouns and so on.
        neutral: nouns that name no thing to draw: steps, pictures, ways, times.
        foreign: common words of other languages that are none of English.
        undrawn: of these, words that say what no picture of this world shows: actions, sizes.
    """

    openers: frozenset[str]
    separators: frozenset[str]
    neutral: frozenset[str]
    foreign: frozenset[str]
    undrawn: frozenset[str]

    @cached_property
    def meaningless(self) -> frozenset[str]:
        """Words that change nothing about what to draw."""
        return (self.separators | self.neutral) - self.undrawn


@cache
def vocabulary() -> Vocabulary:
    text = resources.files(__package__).joinpath("english.yaml").read_text("utf-8")
    lists = {name: frozenset(words.split()) for name, words in yaml.safe_load(text).items()}
    return Vocabulary(**lists | {"separators": lists["openers"] | lists["separators"]})
