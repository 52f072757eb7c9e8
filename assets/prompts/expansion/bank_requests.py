"""Which terms a pack uses where, and what a model is shown of a bank that it shall expand."""

from collections import defaultdict
from typing import NamedTuple

from inference.vocabulary_protocol import BankRequest, TermKind, Topic

from ..pack import Bank, Pack, TemplateSlot

Source = tuple[str, str]  # bank and kind


class Use(NamedTuple):
    """A slot that a term may fill, directly or within another term."""

    subcategory: str
    template_id: str
    form: str | None


def bank_requests(pack: Pack, count: int) -> list[BankRequest]:
    """A request for every bank that can grow: see `open_kinds`.

    Args:
        count: new terms wanted per bank.
    """
    topics = _topics(pack)
    requests = []
    for bank, content in pack.banks.items():
        kinds = tuple(TermKind(kind, tuple(terms)) for kind, terms in open_kinds(content).items())
        if kinds and bank in topics:
            requests.append(BankRequest(bank, topics[bank], kinds, count))
    return requests


def open_kinds(bank: Bank) -> dict[str, list[str]]:
    """Kinds that have terms without slots, and those terms.

    A kind whose every term has slots is grammar rather than vocabulary and is not expanded.
    """
    plain = {kind: [t.term for t in terms if not t.slots] for kind, terms in bank.items()}
    return {kind: terms for kind, terms in plain.items() if terms}


def uses(pack: Pack) -> dict[Source, set[Use]]:
    """Every use of every kind of every bank."""
    by_source: dict[Source, set[Use]] = defaultdict(set)
    for template_id, subcategories in pack.serves.items():
        for sub in subcategories:
            for slot in pack.templates[template_id].slots:
                for source in _sources(pack, slot, pack.subcategories[sub].banks):
                    by_source[source].add(Use(sub, template_id, slot.form))
                    for inner in _slots_of_terms(pack, source):
                        for inner_source in _sources(pack, inner, [source[0]]):
                            by_source[inner_source].add(Use(sub, template_id, inner.form))
    return by_source


def heldout_banks(pack: Pack) -> set[str]:
    """Banks that only held-out sub-categories draw from."""
    subcategories = _subcategories_by_bank(pack)
    return {
        bank
        for bank, names in subcategories.items()
        if all(pack.subcategories[name].heldout for name in names)
    }


def _topics(pack: Pack) -> dict[str, tuple[Topic, ...]]:
    """The sub-categories that draw from each bank, in the taxonomy's order."""
    return {
        bank: tuple(
            Topic(sub.title, sub.description)
            for name, sub in pack.subcategories.items()
            if name in names
        )
        for bank, names in _subcategories_by_bank(pack).items()
    }


def _subcategories_by_bank(pack: Pack) -> dict[str, set[str]]:
    names: dict[str, set[str]] = defaultdict(set)
    for (bank, _), uses_of_kind in uses(pack).items():
        names[bank].update(use.subcategory for use in uses_of_kind)
    return names


def _sources(pack: Pack, slot: TemplateSlot, banks: list[str]) -> list[Source]:
    names = [slot.bank] if slot.bank else banks
    return [(bank, slot.kind) for bank in names if slot.kind in pack.banks.get(bank, {})]


def _slots_of_terms(pack: Pack, source: Source) -> set[TemplateSlot]:
    bank, kind = source
    return {slot for term in pack.banks[bank][kind] for slot in term.slots}
