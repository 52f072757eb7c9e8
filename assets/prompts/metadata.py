"""What Dagster shows of the assets of prompts: counts, plots and samples."""

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

import dagster as dg

from schemas import Row
from schemas.prompts import PromptRow

from ..core import plotting
from ..core.metadata import image_metadata, model_call_costs, table_metadata
from .bank import PromptBank
from .expansion import ExpansionResult
from .file_pack import FileBank
from .user_requests import REQUESTS_PACK


def row_sample(rows: Sequence[Row]) -> dict[str, Any]:
    """A dozen rows, taken evenly from all of them."""
    return {"sample": table_metadata([row.model_dump() for row in _evenly(rows, 12)])}


def bank_metadata(pack: str, bank: PromptBank | FileBank) -> dict[str, Any]:
    """Counts, balance over sub-categories and a sample of one pack's prompts."""
    prompts = bank.prompts
    categories = Counter(row.category for row in prompts)
    counts = Counter(row.subcategory for row in prompts).values() or [0]
    spread = f"min {min(counts)}, median {median(counts):g}, max {max(counts)}"
    title, colours = f"Prompts of {pack} by category", [plotting.OTHER] * len(categories)
    plot = plotting.named_bars(categories, colours, title, "prompts")
    return {
        f"{pack}/prompts": len(prompts),
        f"{pack}/per_subcategory": spread,
        f"{pack}/splits": dict(Counter(row.split for row in prompts)),
        f"{pack}/near_duplicates": bank.near_duplicates,
        f"{pack}/categories": image_metadata(plot, title),
        f"{pack}/sample": _text_sample(prompts, 20),
    }


def input_image_metadata(
    pack: str, rows: Sequence[PromptRow], drawn: Sequence[PromptRow]
) -> dict[str, Any]:
    """Prompts of a pack that come with pictures; `rows`: before those that were refused went."""
    asked = sum(bool(row.input_image_texts) for row in rows)
    if not asked:
        return {}
    counts = {"with pictures": asked, "refused": len(rows) - len(drawn)}
    return {f"{pack}/input_images": counts}


def request_metadata(prompts: Sequence[PromptRow]) -> dict[str, Any]:
    """Number and a sample of users' requests; empty if there are none."""
    if not prompts:
        return {}
    sample = _text_sample(prompts, 12)
    return {f"{REQUESTS_PACK}/prompts": len(prompts), f"{REQUESTS_PACK}/sample": sample}


def expansion_metadata(result: ExpansionResult, version: str | None) -> dict[str, Any]:
    """Numbers of accepted and rejected terms, costs; `version`: their content hash."""
    by_status = Counter(row.status for row in result.proposals)
    metadata = {
        "version": (version or "")[:12],
        "accepted": by_status["accepted"],
        "rejected": by_status["rejected"],
        **model_call_costs(result.calls),
    }
    if message := expansion_warning(result):
        metadata["warning"] = dg.MetadataValue.md(message)
    return metadata


def expansion_warning(result: ExpansionResult) -> str | None:
    """One line about the banks that got no new terms; None if all of them did."""
    if not result.failures and any(row.status == "accepted" for row in result.proposals):
        return None
    reasons = "; ".join(f"{bank}: {why}" for bank, why in list(result.failures.items())[:3])
    which = f"{len(result.failures)} banks" if result.failures else "all banks"
    return (
        f"hand-written terms alone in {which} ({reasons or 'no proposal passed the checks'}). "
        "Materialize vocabulary_expansion again to ask for what is missing: all prompts then change"
    )


def _text_sample(prompts: Sequence[PromptRow], count: int) -> dg.MetadataValue:
    return dg.MetadataValue.md("\n".join(f"- {row.text}" for row in _evenly(prompts, count)))


def _evenly(items: Sequence[Any], count: int) -> Sequence[Any]:
    return items[:: max(1, len(items) // count)][:count]
