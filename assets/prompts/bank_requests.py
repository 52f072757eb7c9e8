"""Which terms a pack uses where, and what a model is shown of a bank that it shall expand."""

from collections import defaultdict
from typing import NamedTuple

from inference.roles import BankRequest, TermKind, Topic

from .pack import Bank, Pack, TemplateSlot

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
    users = _subcategories_by_bank(pack)
    requests = []
    for bank, content in pack.banks.items():
        kinds = tuple(TermKind(kind, tuple(terms)) for kind, terms in open_kinds(content).items())
        subs = [sub for name, sub in pack.subcategories.items() if name in users[bank]]
        if kinds and subs:
            topics = tuple(Topic(sub.title, sub.description) for sub in subs)
            requests.append(BankRequest(bank, topics, kinds, count))
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

    def add(sub: str, template_id: str, slot: TemplateSlot, banks: list[str]) -> None:
        for bank in slot.banks(banks):
            if terms := pack.terms(slot, [bank]):
                by_source[bank, slot.kind].add(Use(sub, template_id, slot.form))
                for inner in {inner for term in terms for inner in term.slots}:
                    add(sub, template_id, inner, [bank])

    for template_id, subcategories in pack.serves.items():
        for sub in subcategories:
            for slot in pack.templates[template_id].slots:
                add(sub, template_id, slot, pack.subcategories[sub].banks)
    return by_source


def heldout_banks(pack: Pack) -> set[str]:
    """Banks that only held-out sub-categories draw from."""
    heldout = {name for name, sub in pack.subcategories.items() if sub.heldout}
    return {bank for bank, names in _subcategories_by_bank(pack).items() if names <= heldout}


def _subcategories_by_bank(pack: Pack) -> dict[str, set[str]]:
    names: dict[str, set[str]] = defaultdict(set)
    for (bank, _), uses_of_kind in uses(pack).items():
        names[bank].update(use.subcategory for use in uses_of_kind)
    return names
