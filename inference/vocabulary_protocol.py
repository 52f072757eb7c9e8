"""The role that proposes new terms for a vocabulary bank, and the values that pass."""

from dataclasses import dataclass
from typing import Protocol

from .roles import Backend


@dataclass(frozen=True)
class Topic:
    """A sub-category whose prompts draw from the bank."""

    title: str
    description: str


@dataclass(frozen=True)
class TermKind:
    """A kind of terms of a bank, with the present ones."""

    name: str
    terms: tuple[str, ...]


@dataclass(frozen=True)
class BankRequest:
    """A bank to be expanded. `count`: new terms requested, over all of its kinds."""

    bank: str
    topics: tuple[Topic, ...]
    kinds: tuple[TermKind, ...]
    count: int


@dataclass(frozen=True)
class ProposedTerm:
    """A term as the model wrote it. `countable`: it has a plural, and takes `a` or `an`."""

    kind: str
    term: str
    countable: bool


@dataclass(frozen=True)
class Proposals:
    terms: tuple[ProposedTerm, ...]
    reasoning: str = ""


class Expander(Backend, Protocol):
    async def expand(self, request: BankRequest) -> Proposals:
        """Propose terms that a bank does not have.

        Raises:
            UnusableAnswerError: the model's answer has no terms in it.
        """
