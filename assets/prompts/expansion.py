"""New terms of vocabulary banks: a model proposes them, and each is accepted or rejected.

A term is accepted if it has the form of its kind, no bank of the pack has nearly the same term, and
the pack's world understands it. Held-out terms do not leak into training through another bank: a
term for training that contains the words of a held-out term is rejected, and held-out banks get
their new terms first.

Terms are compared by the base forms of their words: `Cats`, `cat` and `the cat` are one term.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter

from inference.engine.progress import Progress
from inference.roles import BackendError, qualified_name
from inference.vocabulary_engine import ExpandedBank, expand_banks
from schemas.prompts import ProposalRow
from schemas.trajectories import ModelCallRow

from ..core.foundry import FoundryResource
from .bank_requests import Source, bank_requests, heldout_banks, open_kinds, uses
from .near_duplicates import Words
from .pack import Pack, Term
from .settings import ExpansionSettings
from .template_fills import content_words, literal_text
from .term_validation import TermFormat, world_fault

_WRONG_KIND = "is of a kind that the bank does not have, or whose terms are all grammar"


@dataclass
class ExpansionResult:
    """Proposals for all packs. `failures`: `pack/bank`, or "all banks", to the reason."""

    proposals: list[ProposalRow] = field(default_factory=list)
    calls: list[ModelCallRow] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


async def expand_packs(
    foundry: FoundryResource, packs: Sequence[Pack], settings: ExpansionSettings, progress: Progress
) -> ExpansionResult:
    """Ask for new terms of every bank of the packs, and filter them.

    Raises:
        BackendError: the backend takes no calls, and the settings require it.
    """
    result, profile, count = ExpansionResult(), foundry.settings, settings.terms_per_bank
    try:
        expander = profile.expander(foundry.home, settings.backend, settings.model)
    except BackendError as error:
        if settings.required:
            raise
        result.failures["all banks"] = str(error)
        return result
    name, threshold = qualified_name(expander), settings.near_duplicate
    for pack in packs:
        requests, required = bank_requests(pack, count), settings.required
        banks, calls = await expand_banks(
            requests, expander, foundry.home, pack.name, profile.limits, required, progress
        )
        result.calls += calls
        result.proposals += filter_terms(pack, banks, count, threshold, name)
        failed = (bank for bank in banks if bank.failure)
        result.failures |= {f"{pack.name}/{bank.bank}": bank.failure or "" for bank in failed}
    return result


def filter_terms(
    pack: Pack, banks: Sequence[ExpandedBank], count: int, near_duplicate: float, expander: str
) -> list[ProposalRow]:
    """A row for every proposal, bank by bank.

    Args:
        count: terms asked for per bank; further proposals are rejected.
        near_duplicate: see `_KnownTerms`.
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


class _KnownTerms:
    """An index of terms by their words.

    Args:
        near_duplicate: Jaccard similarity (0-1) from which two terms are the same.
    """

    def __init__(self, near_duplicate: float) -> None:
        self._threshold = near_duplicate
        self._by_word: dict[str, list[tuple[Words, str]]] = defaultdict(list)

    def add(self, term: str, origin: str) -> None:
        """Add a term. `origin`: the term and where it is from, as a reason of rejection says it."""
        words = _base_words(term)
        for word in words:
            self._by_word[word].append((words, origin))

    def most_similar(self, term: str) -> str | None:
        """Origin of the most similar term at or above the threshold, the first of equals."""
        words = _base_words(term)
        similar = [
            (len(words & other) / len(words | other), origin)
            for other, origin in self._sharing(words)
        ]
        similarity, origin = max(similar, key=itemgetter(0), default=(0.0, None))
        return origin if similarity >= self._threshold else None

    def contained_in(self, term: str) -> str | None:
        """Origin of a term whose words all occur in this one."""
        words = _base_words(term)
        return next((origin for other, origin in self._sharing(words) if other <= words), None)

    def _sharing(self, words: Words) -> Iterator[tuple[Words, str]]:
        return (entry for word in sorted(words) for entry in self._by_word.get(word, ()))


def _base_words(term: str) -> Words:
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
        self._uses, self.heldout_banks = uses(pack), heldout_banks(pack)
        self._known, self._heldout = _KnownTerms(near_duplicate), _KnownTerms(near_duplicate)
        for bank, content in pack.banks.items():
            for kind, terms in content.items():
                for term in terms:
                    self._add_known(bank, kind, term.term)

    def rows(self, bank: ExpandedBank) -> Iterator[ProposalRow]:
        content = self._pack.banks[bank.bank]
        formats = {
            kind: TermFormat(content[kind], self._uses[bank.bank, kind])
            for kind in open_kinds(content)
        }
        accepted = 0
        for number, proposed in enumerate(bank.terms, start=1):
            term, fixed = proposed.term, False
            reason: str | None = _WRONG_KIND
            if term_format := formats.get(proposed.kind):
                term = term_format.normalize(term)
                fixed = term_format.is_fixed(proposed.countable)
                reason = term_format.fault(term, fixed)
                reason = reason or self._fault((bank.bank, proposed.kind), term, fixed)
            if reason is None and accepted == self._count:
                reason = "is more than was asked for"
            if reason is None:
                accepted += 1
                self._add_known(bank.bank, proposed.kind, term)
            yield ProposalRow(
                pack=self._pack.name,
                bank=bank.bank,
                number=number,
                kind=proposed.kind,
                proposed=proposed.term,
                term=term,
                fixed=fixed,
                status="rejected" if reason else "accepted",
                reason=reason,
                expander=self._expander,
            )

    def _fault(self, source: Source, term: str, fixed: bool) -> str | None:
        """Why a term that has the form of its kind is rejected."""
        for_training = source[0] not in self.heldout_banks
        if for_training and (known := self._heldout.contained_in(term)):
            return f"is held out with {known}"
        if known := self._known.most_similar(term):
            return f"repeats {known}"
        return world_fault(self._pack, source, Term(term=term, fixed=fixed), self._uses[source])

    def _add_known(self, bank: str, kind: str, term: str) -> None:
        origin = f"`{term}` of {bank}.{kind}"
        self._known.add(term, origin)
        if bank in self.heldout_banks:
            self._heldout.add(term, origin)
