"""The engine of vocabulary expansion: one call a bank, through the journal of its pack.

Like those of `shard.py` it can be killed at any moment and started again: finished calls are found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.trajectories import ModelCallRow, QuarantineRow
from warehouse import Home

from .engine.calls import CallSite, ExpanderCalls
from .engine.progress import NullProgress, Progress
from .engine.retry import summarize_error
from .engine.worker_pool import WorkerPool, quarantine_reason
from .roles import BackendError, uses_batch_api
from .settings import Limits
from .vocabulary_protocol import BankBrief, Expander, ProposedTerm

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
        workers = len(briefs) if uses_batch_api(expander) else limits.agents
        crew = WorkerPool(pack, workers, _ALL_MAY_FAIL, progress or NullProgress())
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
            failure = await quarantine_reason(self._expand(brief, terms))
        except BackendError as error:
            if self.required:
                raise
            failure = summarize_error(error)
        return ExpandedBank(brief.bank, tuple(terms), failure)

    async def _expand(self, brief: BankBrief, terms: list[ProposedTerm]) -> None:
        proposals = (await self.calls.expand(CallSite(brief.bank), self.expander, brief)).answer
        terms.extend(proposals.terms)
