"""What becomes of proposals: accepted as terms of their bank, or rejected for a reason.

A term is accepted when it has the form of its kind, the pack has nothing like it in any bank, and
the pack's world can read it. Nothing of a held-out bank comes back through another: a term for
training that contains the words of a held-out term is rejected, and banks that are held out get
their new terms first.
"""

from collections.abc import Iterator, Sequence

from inference.vocabulary_engine import ExpandedBank
from inference.vocabulary_protocol import ProposedTerm
from schemas.prompts import ProposalRow

from ..pack import Bank, Pack, Term
from .bank_requests import open_kinds
from .term_duplicates import KnownTerm, KnownTerms
from .term_format import TermFormat
from .usage import heldout_banks, uses
from .world_validators import reader_of


def filter_terms(
    pack: Pack, banks: Sequence[ExpandedBank], count: int, near_duplicate: float, expander: str
) -> list[ProposalRow]:
    """A row for every proposal, bank by bank.

    Args:
        count: terms that a bank was to get; what was proposed beyond that is rejected.
        near_duplicate: see `KnownTerms`.
        expander: who proposed them.
    """
    sieve = _TermFilter(pack, count, near_duplicate, expander)
    heldout_first = sorted(banks, key=lambda bank: bank.bank not in sieve.heldout_banks)
    return [row for bank in heldout_first for row in sieve.rows(bank)]


def grown(pack: Pack, rows: Sequence[ProposalRow]) -> Pack:
    """The pack with the accepted proposals, each at the end of its kind.

    What the pack has come to have itself since, or lacks the bank of by now, is left out.
    """
    banks = {bank: {kind: list(terms) for kind, terms in b.items()} for bank, b in _items(pack)}
    for row in rows:
        terms = banks.get(row.bank, {}).get(row.kind)
        if row.pack != pack.name or row.status != "accepted" or terms is None:
            continue
        if all(term.term != row.term for term in terms):
            terms.append(Term(term=row.term, fixed=row.fixed))
    return Pack(pack.name, pack.taxonomy, banks, pack.templates)


class _TermFilter:
    """Rejects what earlier proposals or the pack have; so it remembers what it accepts."""

    def __init__(self, pack: Pack, count: int, near_duplicate: float, expander: str) -> None:
        self._pack, self._count, self._expander = pack, count, expander
        self._uses, self._reads = uses(pack), reader_of(pack)
        self.heldout_banks = heldout_banks(pack)
        self._known, self._heldout = KnownTerms(near_duplicate), KnownTerms(near_duplicate)
        for bank, content in _items(pack):
            for kind, terms in content.items():
                for term in terms:
                    self._remember(KnownTerm(bank, kind, term.term))

    def rows(self, bank: ExpandedBank) -> Iterator[ProposalRow]:
        content = self._pack.banks[bank.bank]
        shapes = {
            kind: TermFormat(content[kind], self._uses[bank.bank, kind])
            for kind in open_kinds(content)
        }
        accepted = 0
        for number, proposed in enumerate(bank.terms, start=1):
            row = self._row(bank.bank, number, proposed, shapes.get(proposed.kind))
            if row.reason is None and accepted == self._count:
                row = row.model_copy(update=_rejected("is more than was asked for"))
            if row.reason is None:
                accepted += 1
                self._remember(KnownTerm(row.bank, row.kind, row.term))
            yield row

    def _row(
        self, bank: str, number: int, proposed: ProposedTerm, shape: TermFormat | None
    ) -> ProposalRow:
        term = shape.normal(proposed.term) if shape else proposed.term
        fixed = shape.fixed(proposed.countable) if shape else False
        row = ProposalRow(
            pack=self._pack.name,
            bank=bank,
            number=number,
            kind=proposed.kind,
            proposed=proposed.term,
            term=term,
            fixed=fixed,
            status="accepted",
            reason=None,
            expander=self._expander,
        )
        reason = self._fault(row, shape)
        return row.model_copy(update=_rejected(reason)) if reason else row

    def _fault(self, row: ProposalRow, shape: TermFormat | None) -> str | None:
        if shape is None:
            return "is of a kind that the bank does not have, or whose terms are all grammar"
        return shape.fault(row.term, row.fixed) or self._repeats(row) or self._unread(row)

    def _repeats(self, row: ProposalRow) -> str | None:
        """What must stay out of training, and what is there already."""
        for_training = row.bank not in self.heldout_banks
        if for_training and (known := self._heldout.within(row.term)):
            return f"is held out with {known}"
        known = self._known.twin(row.term)
        return f"repeats {known}" if known else None

    def _unread(self, row: ProposalRow) -> str | None:
        source = row.bank, row.kind
        return self._reads(source, Term(term=row.term, fixed=row.fixed), self._uses[source])

    def _remember(self, known: KnownTerm) -> None:
        self._known.add(known)
        if known.bank in self.heldout_banks:
            self._heldout.add(known)


def _rejected(reason: str) -> dict[str, str]:
    return {"status": "rejected", "reason": reason}


def _items(pack: Pack) -> list[tuple[str, Bank]]:
    return list(pack.banks.items())
