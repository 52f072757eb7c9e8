"""Who proposes new terms for a vocabulary bank, and what is asked of it."""

from dataclasses import dataclass
from typing import Protocol

from .roles import Backend


@dataclass(frozen=True)
class Topic:
    """A sub-category whose prompts draw from the bank."""

    title: str
    description: str


@dataclass(frozen=True)
class KindBrief:
    """A kind of terms that a bank has, and those that it has already."""

    name: str
    terms: tuple[str, ...]


@dataclass(frozen=True)
class BankBrief:
    """A bank to be expanded. `count`: new terms wanted, over all of its kinds."""

    bank: str
    topics: tuple[Topic, ...]
    kinds: tuple[KindBrief, ...]
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
    async def expand(self, brief: BankBrief) -> Proposals:
        """Propose terms that a bank does not have.

        Raises:
            BadAnswer: nothing can be made of what the model answers.
        """
