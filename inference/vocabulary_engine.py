"""Vocabulary expansion: one call per bank, through the journal of its pack.

Like the engines of `shard.py` it can be killed at any time and run again: finished calls are found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from schemas import FoundryError
from schemas.trajectories import ModelCallRow
from warehouse import Home

from .calls.ask import CallSite, ExpanderCalls
from .calls.progress import Progress
from .calls.retry import summarize_error
from .roles import BackendError, BankRequest, Expander, ProposedTerm, uses_batch_api
from .settings import Limits

ASSET = "vocabulary_expansion"


@dataclass(frozen=True)
class ExpandedBank:
    """The terms proposed for a bank; `failure`: why there are none."""

    bank: str
    terms: tuple[ProposedTerm, ...]
    failure: str | None


async def expand_banks(
    requests: Sequence[BankRequest],
    expander: Expander,
    home: Home,
    pack: str,
    limits: Limits,
    required: bool,
    progress: Progress,
) -> tuple[list[ExpandedBank], list[ModelCallRow]]:
    """Ask for new terms of every bank of one pack; the calls made are the second part.

    Args:
        required: a backend that takes no calls is a BackendError; else only its banks fail.

    Raises:
        FoundryError: the journal cannot be written.
    """
    with ExpanderCalls(home, ASSET, pack, expander, limits) as calls:
        workers = len(requests) if uses_batch_api(expander) else limits.agents
        expand = partial(_expand, calls, required)
        return await calls.map(expand, requests, workers, progress), calls.ledger()


async def _expand(calls: ExpanderCalls, required: bool, request: BankRequest) -> ExpandedBank:
    try:
        result = await calls.expand(CallSite(request.bank), request)
    except Exception as error:
        passes = required if isinstance(error, BackendError) else isinstance(error, FoundryError)
        if passes:
            raise
        return ExpandedBank(request.bank, (), summarize_error(error))
    return ExpandedBank(request.bank, result.answer.terms, None)
