"""What an expansion came to: for asset metadata and people."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import dagster as dg

from schemas.prompts import ProposalRow

from ...core.costs import spent
from ...core.node import sample
from .expand import Expanded

_SHOWN = 60
_LONGEST = 80


def expansion_metadata(expanded: Expanded, version: str | None) -> dict[str, Any]:
    """Terms that were accepted, terms that were rejected and why, and what it took.

    Args:
        version: hash of the proposals, which the prompts follow from.
    """
    by_status = Counter(row.status for row in expanded.proposals)
    shown = {
        "version": (version or "")[:12],
        "accepted": by_status["accepted"],
        "rejected": by_status["rejected"],
        "accepted_terms": _table(expanded.proposals, "accepted", "bank", "kind", "term"),
        "rejected_terms": _table(expanded.proposals, "rejected", "bank", "proposed", "reason"),
        **spent(expanded.calls),
    }
    if lacking := warning(expanded):
        shown["warning"] = dg.MetadataValue.md(lacking)
    return shown


def warning(expanded: Expanded) -> str | None:
    """What is as it was written by hand although it was to be expanded, in one line."""
    if not expanded.failures and any(row.status == "accepted" for row in expanded.proposals):
        return None
    reasons = "; ".join(f"{bank}: {why}" for bank, why in list(expanded.failures.items())[:3])
    which = f"{len(expanded.failures)} banks" if expanded.failures else "all banks"
    return (
        f"hand-written terms alone in {which} ({reasons or 'no proposal passed the checks'}). "
        "Materialize vocabulary_expansion again to ask for what is missing: all prompts then change"
    )


def _table(rows: Sequence[ProposalRow], status: str, *columns: str) -> dg.MetadataValue:
    """Some rows of a status, evenly from all banks."""
    chosen = [row for row in rows if row.status == status]
    some = chosen[:: -(-len(chosen) // _SHOWN) or 1]
    return sample([{name: str(getattr(row, name))[:_LONGEST] for name in columns} for row in some])
