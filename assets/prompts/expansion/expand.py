"""Asks a profile's model for new terms of every bank, and filters what it proposes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from inference.engine.progress import Progress
from inference.roles import BackendError, qualified_name
from inference.vocabulary_engine import expand_banks
from schemas.prompts import ProposalRow
from schemas.trajectories import ModelCallRow

from ...core.foundry import FoundryResource
from ..pack import Pack
from ..settings import ExpansionSettings
from .bank_requests import bank_requests
from .term_filter import filter_terms


@dataclass
class ExpansionResult:
    """Proposals for all packs. `failures`: `pack/bank`, or "all banks", to the reason."""

    proposals: list[ProposalRow] = field(default_factory=list)
    calls: list[ModelCallRow] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


async def expand_packs(
    foundry: FoundryResource, packs: Sequence[Pack], settings: ExpansionSettings, progress: Progress
) -> ExpansionResult:
    """Ask for new terms of every bank of the packs, and filter them.

    Raises:
        BackendError: the backend takes no calls, and the settings require it.
    """
    result = ExpansionResult()
    try:
        expander = foundry.settings.expander(foundry.home, settings.backend, settings.model)
    except BackendError as error:
        if settings.required:
            raise
        result.failures["all banks"] = str(error)
        return result
    for pack in packs:
        expansion = await expand_banks(
            bank_requests(pack, settings.terms_per_bank),
            expander,
            foundry.home,
            pack.name,
            foundry.settings.limits,
            settings.required,
            progress,
        )
        result.calls += expansion.calls
        result.proposals += filter_terms(
            pack,
            expansion.banks,
            settings.terms_per_bank,
            settings.near_duplicate,
            qualified_name(expander),
        )
        result.failures |= {
            f"{pack.name}/{bank.bank}": bank.failure for bank in expansion.banks if bank.failure
        }
    return result
