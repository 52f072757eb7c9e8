"""The engine of vocabulary expansion: one call a bank, through the journal of its pack.

Like those of `shard.py` it can be killed at any moment and started again: finished calls are found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..schemas.trajectories import ModelCallRow, QuarantineRow
from ..warehouse import Home
from .calls import ExpanderCalls, Place
from .crew import Crew, reason_aside
from .expander import BankBrief, Expander, ProposedTerm
from .progress import Progress, Silent
from .roles import BackendError, is_patient
from .settings import Limits
from .tries import one_line

ASSET = "vocabulary_expansion"
_ALL_MAY_FAIL = 1.0  # a bank that nothing was proposed for keeps what it has


@dataclass(frozen=True)
class ExpandedBank:
    """What was proposed for a bank; `failure`: why nothing was."""

    bank: str
    terms: tuple[ProposedTerm, ...]
    failure: str | None
    quarantine: QuarantineRow | None = None


@dataclass(frozen=True)
class Expansion:
    """What was proposed for the banks of a pack, and the calls that it took."""

    banks: list[ExpandedBank]
    calls: list[ModelCallRow]


async def expand_banks(
    briefs: Sequence[BankBrief],
    expander: Expander,
    home: Home,
    pack: str,
    limits: Limits,
    required: bool = True,
    progress: Progress | None = None,
) -> Expansion:
    """Have terms proposed for every bank of one pack.

    Args:
        required: a backend that takes no calls is an error; else its banks just fail.

    Raises:
        BackendError: see `required`; calls under way were finished.
        FoundryError: the journal cannot be written.
    """
    with ExpanderCalls(home, ASSET, pack, limits) as calls:
        workers = len(briefs) if is_patient(expander) else limits.agents
        crew = Crew(pack, workers, _ALL_MAY_FAIL, progress or Silent())
        banks = await crew.each(briefs, _Expanding(calls, expander, required))
        return Expansion(banks, calls.ledger())


@dataclass(frozen=True)
class _Expanding:
    calls: ExpanderCalls
    expander: Expander
    required: bool

    async def __call__(self, brief: BankBrief) -> ExpandedBank:
        terms: list[ProposedTerm] = []
        try:
            failure = await reason_aside(self._expand(brief, terms))
        except BackendError as error:
            if self.required:
                raise
            failure = one_line(error)
        return ExpandedBank(brief.bank, tuple(terms), failure)

    async def _expand(self, brief: BankBrief, terms: list[ProposedTerm]) -> None:
        proposals = (await self.calls.expand(Place(brief.bank), self.expander, brief)).answer
        terms.extend(proposals.terms)
