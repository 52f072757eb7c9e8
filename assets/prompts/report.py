"""What a prompt bank holds, in numbers: for asset metadata and people."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from pydantic import BaseModel, Field

from schemas.prompts import PromptRow


class BankReport(BaseModel, frozen=True):
    """Counts of a bank's prompts."""

    prompts: int = Field(description="Prompts")
    distinct: int = Field(description="Distinct texts")
    categories: dict[str, int] = Field(description="Prompts by main category")
    subcategories: dict[str, int] = Field(description="Prompts by sub-category")
    minimum: int = Field(description="Prompts of the smallest sub-category")
    median: float = Field(description="Median over the sub-categories")
    maximum: int = Field(description="Prompts of the largest sub-category")
    splits: dict[str, int] = Field(description="Prompts by split")
    suffixes: dict[str, int] = Field(description="Prompts by suffix variant")
    templates: int = Field(description="Templates in use")
    near_duplicates: int | None = Field(description="Candidates left out as near-duplicates")
    sample: list[str] = Field(description="Texts taken evenly from all of it")


def bank_report(
    prompts: Sequence[PromptRow], near_duplicates: int | None = None, sample: int = 20
) -> BankReport:
    """The report of a bank, or of any part of one.

    `near_duplicates` is known to `draw_bank` alone.
    """
    subcategories = Counter(prompt.subcategory for prompt in prompts)
    counts = sorted(subcategories.values()) or [0]
    return BankReport(
        prompts=len(prompts),
        distinct=len({prompt.text for prompt in prompts}),
        categories=dict(Counter(prompt.category for prompt in prompts)),
        subcategories=dict(subcategories),
        minimum=counts[0],
        median=median(counts),
        maximum=counts[-1],
        splits=dict(Counter(prompt.split for prompt in prompts)),
        suffixes=dict(Counter(prompt.suffix or "none" for prompt in prompts)),
        templates=len({prompt.template_id for prompt in prompts}),
        near_duplicates=near_duplicates,
        sample=[prompt.text for prompt in prompts[:: max(1, len(prompts) // sample)]][:sample],
    )
