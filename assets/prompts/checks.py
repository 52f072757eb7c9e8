"""Blocking checks of the prompt bank, which run before anything is made from it."""

from schemas.prompts import PROMPTS

from ..core import integrity
from ..core.checks import blocking_checks
from ..core.foundry import FoundryResource
from .assets import EXPANSION, PROMPT_BANK, TAXONOMY, TEMPLATE_SET, VOCABULARY_BANKS


def _splits_disjoint(foundry: FoundryResource, _shard: str | None) -> integrity.Violations:
    """A held-out template, sub-category or combination of terms must not occur in training."""
    columns = ["pack", "subcategory", "template_id", "terms", "split"]
    return integrity.leaking_prompts(foundry.home.lake.read(PROMPTS, columns=columns))


def _texts_distinct(foundry: FoundryResource, _shard: str | None) -> integrity.Violations:
    return integrity.repeated_texts(foundry.home.lake.read(PROMPTS, columns=["pack", "text"]))


taxonomy_checks = blocking_checks(TAXONOMY)
vocabulary_expansion_checks = blocking_checks(EXPANSION)
vocabulary_checks = blocking_checks(VOCABULARY_BANKS)
templates_checks = blocking_checks(TEMPLATE_SET)
prompts_checks = blocking_checks(
    PROMPT_BANK,
    {
        "splits_disjoint": ("Nothing held out occurs in training", _splits_disjoint),
        "texts_distinct": ("No two prompts of a pack have the same text", _texts_distinct),
    },
)
