"""Blocking checks of the prompt bank, which run before anything is made from it."""

from schemas.prompts import PROMPTS

from ..core.checks import Violations, blocking_checks, find_rows, repeated_rows
from ..core.foundry import FoundryResource
from ..core.node import NODES
from .assets import EXPANSION, PROMPT_BANK
from .file_pack import IMPORTED

# Prompts of files have no templates: each is held out, or not, by itself.
_HELDOUT_IN_TRAINING = f"""
    with train as (select * from data where split = 'train')
    select * from (
        select pack, 'template' as what, template_id as which from data
            where split = 'heldout' and template_id <> '{IMPORTED}'
            and (pack, template_id) in (select pack, template_id from train)
        union select pack, 'terms', array_to_string(terms, ', ') from data
            where split = 'heldout' and len(terms) > 1
            and (pack, list_sort(terms)) in (select pack, list_sort(terms) from train)
        union select pack, 'subcategory', subcategory from data
            where split = 'heldout_category'
            and (pack, subcategory) in (select pack, subcategory from train)
    )
"""


def _splits_disjoint(foundry: FoundryResource, _shard: str | None) -> Violations:
    """A held-out template, sub-category or combination of terms must not occur in training."""
    columns = ["pack", "subcategory", "template_id", "terms", "split"]
    prompts = foundry.home.lake.read(PROMPTS, columns=columns)
    return find_rows(_HELDOUT_IN_TRAINING, data=prompts)


def _texts_distinct(foundry: FoundryResource, _shard: str | None) -> Violations:
    columns = ["pack", "text", "input_images", "input_image_texts"]
    return repeated_rows(foundry.home.lake.read(PROMPTS, columns=columns))


pack_checks = [
    blocking_checks(node)
    for node in (NODES["taxonomy"], EXPANSION, NODES["vocabulary"], NODES["templates"])
]
prompts_checks = blocking_checks(
    PROMPT_BANK,
    splits_disjoint=("Nothing held out occurs in training", _splits_disjoint),
    texts_distinct=("No two prompts of a pack have the same text and pictures", _texts_distinct),
)
