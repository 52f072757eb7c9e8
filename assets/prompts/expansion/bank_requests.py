"""What a model is shown of a bank that it is to expand."""

from inference.vocabulary_protocol import BankBrief, KindBrief, Topic

from ..pack import Bank, Pack
from .usage import uses


def bank_briefs(pack: Pack, count: int) -> list[BankBrief]:
    """A brief for every bank that can grow: see `open_kinds`.

    Args:
        count: terms wanted in a bank.
    """
    topics = _topics(pack)
    return [
        BankBrief(bank, topics[bank], kinds, count)
        for bank, content in pack.banks.items()
        if (kinds := _kinds(content)) and bank in topics
    ]


def open_kinds(bank: Bank) -> dict[str, list[str]]:
    """Kinds that have plain terms, and those terms.

    Where every term has slots, a kind is grammar rather than vocabulary: it is left as it is.
    """
    plain = {kind: [t.term for t in terms if not t.slots] for kind, terms in bank.items()}
    return {kind: terms for kind, terms in plain.items() if terms}


def _kinds(bank: Bank) -> tuple[KindBrief, ...]:
    return tuple(KindBrief(kind, tuple(terms)) for kind, terms in open_kinds(bank).items())


def _topics(pack: Pack) -> dict[str, tuple[Topic, ...]]:
    """The sub-categories that draw from each bank, in the taxonomy's order."""
    drawing: dict[str, set[str]] = {}
    for (bank, _), places in uses(pack).items():
        drawing.setdefault(bank, set()).update(use.subcategory for use in places)
    return {
        bank: tuple(
            Topic(sub.title, sub.description)
            for name, sub in pack.subcategories.items()
            if name in names
        )
        for bank, names in drawing.items()
    }
