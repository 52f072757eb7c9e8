"""A profile's packs, expanded: who is asked, and what it came to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from inference.engine.progress import Progress
from inference.roles import BackendError, qualified_name
from inference.vocabulary_engine import expand_banks
from inference.vocabulary_protocol import Expander
from schemas.prompts import ProposalRow
from schemas.trajectories import ModelCallRow

from ...core.foundry import FoundryResource
from ..pack import Pack
from ..settings import ExpansionSettings
from .bank_requests import bank_briefs
from .term_filter import filter_terms


@dataclass
class Expanded:
    """Proposals for all packs. `failures`: `pack/bank` (or what else) to why it got none."""

    proposals: list[ProposalRow] = field(default_factory=list)
    calls: list[ModelCallRow] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


async def expand_packs(
    foundry: FoundryResource, packs: Sequence[Pack], settings: ExpansionSettings, progress: Progress
) -> Expanded:
    """Ask for new terms of every bank of the packs, and sift them.

    Raises:
        BackendError: the backend takes no calls, and the settings require it.
    """
    expanded = Expanded()
    try:
        expander = foundry.settings.expander(foundry.home, settings.backend, settings.model)
    except BackendError as error:
        if settings.required:
            raise
        expanded.failures["all banks"] = str(error)
        return expanded
    for pack in packs:
        await _expand(expanded, foundry, pack, settings, expander, progress)
    return expanded


async def _expand(
    expanded: Expanded,
    foundry: FoundryResource,
    pack: Pack,
    settings: ExpansionSettings,
    expander: Expander,
    progress: Progress,
) -> None:
    count = settings.terms_per_bank
    answers = await expand_banks(
        bank_briefs(pack, count),
        expander,
        foundry.home,
        pack.name,
        foundry.settings.limits,
        settings.required,
        progress,
    )
    expanded.calls += answers.calls
    expanded.proposals += filter_terms(
        pack, answers.banks, count, settings.near_duplicate, qualified_name(expander)
    )
    expanded.failures |= {
        f"{pack.name}/{bank.bank}": bank.failure for bank in answers.banks if bank.failure
    }
