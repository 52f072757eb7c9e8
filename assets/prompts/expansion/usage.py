"""Where a pack uses its terms: in which templates and sub-categories, and in which forms."""

from collections import defaultdict
from typing import NamedTuple

from ..pack import Pack, TemplateSlot

Source = tuple[str, str]  # bank and kind


class Use(NamedTuple):
    """A slot that a term may fill, directly or within another term."""

    subcategory: str
    template_id: str
    form: str | None


def uses(pack: Pack) -> dict[Source, set[Use]]:
    """Every use of every kind of every bank."""
    found: dict[Source, set[Use]] = defaultdict(set)
    for template_id, places in pack.serves.items():
        for sub in places:
            for slot in pack.templates[template_id].slots:
                for source in _sources(pack, slot, pack.subcategories[sub].banks):
                    found[source].add(Use(sub, template_id, slot.form))
                    for inner in _inner(pack, source):
                        for deeper in _sources(pack, inner, [source[0]]):
                            found[deeper].add(Use(sub, template_id, inner.form))
    return found


def heldout_banks(pack: Pack) -> set[str]:
    """Banks that no prompt of training draws from."""
    drawn = {(bank, use.subcategory) for (bank, _), places in uses(pack).items() for use in places}
    training = {bank for bank, sub in drawn if not pack.subcategories[sub].heldout}
    return {bank for bank, _ in drawn} - training


def _sources(pack: Pack, slot: TemplateSlot, banks: list[str]) -> list[Source]:
    named = [slot.bank] if slot.bank else banks
    return [(bank, slot.kind) for bank in named if slot.kind in pack.banks.get(bank, {})]


def _inner(pack: Pack, source: Source) -> set[TemplateSlot]:
    bank, kind = source
    return {slot for term in pack.banks[bank][kind] for slot in term.slots}
