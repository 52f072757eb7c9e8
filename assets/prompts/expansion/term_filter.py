"""Accepts proposed terms for their bank, or rejects them with a reason.

A term is accepted if it has the form of its kind, no bank of the pack has nearly the same term, and
the pack's world understands it. Held-out terms do not leak into training through another bank: a
term for training that contains the words of a held-out term is rejected, and held-out banks get
their new terms first.

Terms are compared by the base forms of their words: `Cats`, `cat` and `the cat` are one term.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from inference.vocabulary_engine import ExpandedBank
from inference.vocabulary_protocol import ProposedTerm
from schemas.prompts import ProposalRow

from ..pack import Pack, Term
from ..template_fills import content_words, literal_text
from .bank_requests import heldout_banks, open_kinds, uses
from .term_validation import TermFormat, world_validator

Words = frozenset[str]


def filter_terms(
    pack: Pack, banks: Sequence[ExpandedBank], count: int, near_duplicate: float, expander: str
) -> list[ProposalRow]:
    """A row for every proposal, bank by bank.

    Args:
        count: terms asked for per bank; further proposals are rejected.
        near_duplicate: see `KnownTerms`.
        expander: name of the model that proposed them.
    """
    term_filter = _TermFilter(pack, count, near_duplicate, expander)
    heldout_first = sorted(banks, key=lambda bank: bank.bank not in term_filter.heldout_banks)
    return [row for bank in heldout_first for row in term_filter.rows(bank)]


def add_accepted_terms(pack: Pack, rows: Sequence[ProposalRow]) -> Pack:
    """The pack with the accepted proposals, each at the end of its kind.

    Skips terms that the pack has by now, and those of banks that it no longer has.
    """
    banks = {
        bank: {kind: list(terms) for kind, terms in kinds.items()}
        for bank, kinds in pack.banks.items()
    }
    for row in rows:
        terms = banks.get(row.bank, {}).get(row.kind)
        if row.pack != pack.name or row.status != "accepted" or terms is None:
            continue
        if all(term.term != row.term for term in terms):
            terms.append(Term(term=row.term, fixed=row.fixed))
    return Pack(pack.name, pack.taxonomy, banks, pack.templates)


class KnownTerm(NamedTuple):
    """A term of the pack, or one accepted earlier."""

    bank: str
    kind: str
    term: str

    def __str__(self) -> str:
        return f"`{self.term}` of {self.bank}.{self.kind}"


class KnownTerms:
    """An index of terms by their words.

    Args:
        near_duplicate: Jaccard similarity (0-1) from which two terms are the same.
    """

    def __init__(self, near_duplicate: float) -> None:
        self._threshold = near_duplicate
        self._by_word: dict[str, list[tuple[Words, KnownTerm]]] = defaultdict(list)

    def add(self, known: KnownTerm) -> None:
        words = base_words(known.term)
        for word in words:
            self._by_word[word].append((words, known))

    def most_similar(self, term: str) -> KnownTerm | None:
        """The most similar term at or above the threshold, the first of equals."""
        words = base_words(term)
        similar = (  # by Jaccard similarity
            (len(words & other) / len(words | other), known)
            for other, known in self._sharing(words)
        )
        best = max(similar, key=lambda pair: pair[0], default=None)
        return best[1] if best and best[0] >= self._threshold else None

    def contained_in(self, term: str) -> KnownTerm | None:
        """A term whose words all occur in this one."""
        words = base_words(term)
        return next((known for other, known in self._sharing(words) if other <= words), None)

    def _sharing(self, words: Words) -> Iterator[tuple[Words, KnownTerm]]:
        return (entry for word in sorted(words) for entry in self._by_word.get(word, ()))


def base_words(term: str) -> Words:
    """The content words of a term without its slots, each in one base form."""
    return frozenset(map(_base_form, content_words(re.sub("[-_]", " ", literal_text(term)))))


@cache
def _base_form(word: str) -> str:
    """The alphabetically first base form: `leaves` may come from leaf or leave."""
    from lemminflect import getAllLemmas, getLemma

    lemmas = {lemma for forms in getAllLemmas(word).values() for lemma in forms}
    return min(lemmas or getLemma(word, "NOUN"), default=word).lower()


class _TermFilter:
    """Judges proposals one after another; accepted terms count as known for the following ones."""

    def __init__(self, pack: Pack, count: int, near_duplicate: float, expander: str) -> None:
        self._pack, self._count, self._expander = pack, count, expander
        self._uses, self._world_fault = uses(pack), world_validator(pack)
        self.heldout_banks = heldout_banks(pack)
        self._known, self._heldout = KnownTerms(near_duplicate), KnownTerms(near_duplicate)
        for bank, content in pack.banks.items():
            for kind, terms in content.items():
                for term in terms:
                    self._add_known(KnownTerm(bank, kind, term.term))

    def rows(self, bank: ExpandedBank) -> Iterator[ProposalRow]:
        content = self._pack.banks[bank.bank]
        formats = {
            kind: TermFormat(content[kind], self._uses[bank.bank, kind])
            for kind in open_kinds(content)
        }
        accepted = 0
        for number, proposed in enumerate(bank.terms, start=1):
            row = self._row(bank.bank, number, proposed, formats.get(proposed.kind))
            if row.reason is None and accepted == self._count:
                row = row.model_copy(update=_rejection("is more than was asked for"))
            if row.reason is None:
                accepted += 1
                self._add_known(KnownTerm(row.bank, row.kind, row.term))
            yield row

    def _row(
        self, bank: str, number: int, proposed: ProposedTerm, term_format: TermFormat | None
    ) -> ProposalRow:
        term = term_format.normalize(proposed.term) if term_format else proposed.term
        fixed = term_format.is_fixed(proposed.countable) if term_format else False
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
        reason = self._fault(row, term_format)
        return row.model_copy(update=_rejection(reason)) if reason else row

    def _fault(self, row: ProposalRow, term_format: TermFormat | None) -> str | None:
        if term_format is None:
            return "is of a kind that the bank does not have, or whose terms are all grammar"
        source = row.bank, row.kind
        return (
            term_format.fault(row.term, row.fixed)
            or self._duplicate_fault(row)
            or self._world_fault(source, Term(term=row.term, fixed=row.fixed), self._uses[source])
        )

    def _duplicate_fault(self, row: ProposalRow) -> str | None:
        for_training = row.bank not in self.heldout_banks
        if for_training and (known := self._heldout.contained_in(row.term)):
            return f"is held out with {known}"
        known = self._known.most_similar(row.term)
        return f"repeats {known}" if known else None

    def _add_known(self, known: KnownTerm) -> None:
        self._known.add(known)
        if known.bank in self.heldout_banks:
            self._heldout.add(known)


def _rejection(reason: str) -> dict[str, str]:
    return {"status": "rejected", "reason": reason}
