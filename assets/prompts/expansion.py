"""New terms of vocabulary banks: a model proposes them, and each is accepted or rejected.

A term is accepted if it has the form of its kind, no bank of the pack has nearly the same term
(`Cats`, `cat` and `the cat` are one), and the pack's world (`reader` in its taxonomy) understands
it. Held-out terms do not leak into training through another bank: a term for training that contains
the words of a held-out term is rejected, and held-out banks get their new terms first.

The form of a kind is learned from its terms and from how templates inflect them. A proposal is
brought into that form where that cannot change its meaning (spaces, quotes, an article, an initial
capital); other differences are reported.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from random import Random
from typing import NamedTuple

from inference.calls.ask import ask_all
from inference.calls.progress import Progress
from inference.calls.retry import CallFailedError
from inference.questions import BankQuestion, ProposedTerm, TermKind, Topic
from inference.roles import UnusableAnswerError, qualified_name
from inference.sketch_world.request_parser import RequestText
from inference.sketch_world.story_catalog import choose_story, load_stories
from schemas.prompts import ProposalRow
from schemas.trajectories import ModelCallRow

from ..core.foundry import FoundryResource
from .pack import Bank, Pack, TemplateSlot, Term
from .settings import ExpansionSettings
from .template_fills import Words, choices, content_words, fill_sequence, literal_text

ASSET = "vocabulary_expansion"
_NEAR_DUPLICATE = 0.7  # Jaccard similarity of base forms from which a term is another's
_WRONG_KIND = "is of a kind that the bank does not have, or whose terms are all grammar"
_MORE_CHARACTERS, _MORE_WORDS = 10, 1  # allowed beyond the longest term of the kind
_LETTERS = {chr(code) for code in range(0x250) if chr(code).isalpha()}
_ARTICLE = re.compile(r"^(?:an?|the) ", re.IGNORECASE)
_LIST_MARKER = re.compile(r"^(?:[-*\u2022] +|\d+[.)] *)")
_QUOTES = "\"'\u201c\u201d\u2018`"
_VERB_FORMS, _NOUN_FORMS = {"gerund", "third", "past"}, {"a", "plural"}
# What may follow the noun that is inflected: `robot with a tray`.
_PREPOSITIONS = {"of", "with", "without", "in", "on", "at", "for", "from", "to", "by", "near"}
_AFTER_THE_NOUN = _PREPOSITIONS | {"and", "who", "that"}
_MAX_TEMPLATES = 3  # tried per sub-category
_MAX_FILLS = 20  # tried per template, to find one with the term

Source = tuple[str, str]  # bank and kind


class Use(NamedTuple):
    """A slot that a term may fill, directly or within another term."""

    subcategory: str
    template_id: str
    form: str | None


@dataclass
class ExpansionResult:
    """Proposals for all packs. `failures`: `pack/bank` to the reason."""

    proposals: list[ProposalRow] = field(default_factory=list)
    calls: list[ModelCallRow] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


async def expand_packs(
    foundry: FoundryResource, packs: Sequence[Pack], settings: ExpansionSettings, progress: Progress
) -> ExpansionResult:
    """Ask for new terms of every bank, and filter them.

    BackendError: the backend takes no calls (rejected key, spent budget).
    """
    result, profile, count = ExpansionResult(), foundry.settings, settings.terms_per_bank
    expander = profile.respondent("expander", foundry.home, settings.backend, settings.model)
    name = qualified_name(expander)
    # A bank without proposals stays as it is.
    tolerated = (UnusableAnswerError, CallFailedError)
    for pack in packs:
        questions = {question.bank: question for question in bank_questions(pack, count)}
        replies, calls = await ask_all(
            foundry.home, ASSET, pack.name, expander, questions, profile.limits, progress, tolerated
        )
        result.calls += calls
        proposed = {bank: reply.answer.terms for bank, reply in replies.items() if reply.answer}
        result.proposals += filter_terms(pack, proposed, count, name)
        failed = {bank: reply.failure for bank, reply in replies.items() if reply.failure}
        result.failures |= {f"{pack.name}/{bank}": failure for bank, failure in failed.items()}
    return result


def bank_questions(pack: Pack, count: int) -> list[BankQuestion]:
    """A question for `count` new terms for every bank that can grow: see `open_kinds`."""
    users = _subcategories_by_bank(pack)
    questions = []
    for bank, content in pack.banks.items():
        kinds = tuple(TermKind(kind, tuple(terms)) for kind, terms in open_kinds(content).items())
        subs = [sub for name, sub in pack.subcategories.items() if name in users[bank]]
        if kinds and subs:
            topics = tuple(Topic(sub.title, sub.description) for sub in subs)
            questions.append(BankQuestion(bank, topics, kinds, count))
    return questions


def open_kinds(bank: Bank) -> dict[str, list[str]]:
    """Kinds with their terms without slots; a kind that has none is grammar, not vocabulary."""
    plain = {kind: [t.term for t in terms if not t.slots] for kind, terms in bank.items()}
    return {kind: terms for kind, terms in plain.items() if terms}


def uses(pack: Pack) -> dict[Source, set[Use]]:
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


def filter_terms(
    pack: Pack, banks: Mapping[str, Sequence[ProposedTerm]], count: int, expander: str
) -> list[ProposalRow]:
    """A row for every proposal of the model `expander`, bank by bank.

    Rejects all after `count` per bank, and those that nearly repeat a known term.
    """
    term_filter = _TermFilter(pack, count, expander)
    heldout_first = sorted(banks, key=lambda bank: bank not in term_filter.heldout_banks)
    return [row for bank in heldout_first for row in term_filter.rows(bank, banks[bank])]


def add_accepted_terms(pack: Pack, rows: Sequence[ProposalRow]) -> Pack:
    """The pack with the accepted proposals that it lacks, each at the end of its kind.

    Skips those of banks that it no longer has.
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


class _KnownTerm(NamedTuple):
    """A term of the pack, or one accepted earlier. `origin`: what a reason of rejection says."""

    words: Words
    origin: str
    heldout: bool


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

    def __init__(self, pack: Pack, count: int, expander: str) -> None:
        self._pack, self._count, self._expander = pack, count, expander
        self._uses, self.heldout_banks = uses(pack), heldout_banks(pack)
        self._known: dict[str, list[_KnownTerm]] = defaultdict(list)  # by each of their words
        for bank, content in pack.banks.items():
            for kind, terms in content.items():
                for term in terms:
                    self._add_known(bank, kind, term.term)

    def rows(self, bank: str, terms: Sequence[ProposedTerm]) -> Iterator[ProposalRow]:
        content = self._pack.banks[bank]
        formats = {
            kind: TermFormat(content[kind], self._uses[bank, kind]) for kind in open_kinds(content)
        }
        accepted = 0
        for number, proposed in enumerate(terms, start=1):
            term, fixed = proposed.term, False
            reason: str | None = _WRONG_KIND
            if term_format := formats.get(proposed.kind):
                term = term_format.normalize(term)
                fixed = term_format.all_fixed or not proposed.countable
                reason = term_format.fault(term, fixed)
                reason = reason or self._fault((bank, proposed.kind), term, fixed)
            if reason is None and accepted == self._count:
                reason = "is more than was asked for"
            if reason is None:
                accepted += 1
                self._add_known(bank, proposed.kind, term)
            yield ProposalRow(
                pack=self._pack.name,
                bank=bank,
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
        words = _base_words(term)
        sharing = [known for word in sorted(words) for known in self._known.get(word, ())]
        contained = (known for known in sharing if known.heldout and known.words <= words)
        if source[0] not in self.heldout_banks and (known := next(contained, None)):
            return f"is held out with {known.origin}"
        similar = [len(words & known.words) / len(words | known.words) for known in sharing]
        highest = max(similar, default=0.0)
        if highest >= _NEAR_DUPLICATE:
            return f"repeats {sharing[similar.index(highest)].origin}"
        return world_fault(self._pack, source, Term(term=term, fixed=fixed), self._uses[source])

    def _add_known(self, bank: str, kind: str, term: str) -> None:
        origin, heldout = f"`{term}` of {bank}.{kind}", bank in self.heldout_banks
        known = _KnownTerm(_base_words(term), origin, heldout)
        for word in known.words:
            self._known[word].append(known)


class TermFormat:
    """The form of one kind of one bank, at least one of whose terms has no slots."""

    def __init__(self, terms: Sequence[Term], uses: set[Use]) -> None:
        plain = [term for term in terms if not term.slots]
        texts = [term.term for term in plain]
        self._forms = {use.form for use in uses}
        self.all_fixed = all(term.fixed for term in plain)
        self._articles = {bool(_ARTICLE.match(text)) for text in texts}
        self._all_lower = all(text == text.lower() for text in texts)
        self._all_upper = all(text == text.upper() for text in texts)
        self._characters = _LETTERS.union(" -'", *texts)
        self._max_characters = max(map(len, texts)) + _MORE_CHARACTERS
        self._max_words = max(len(text.split()) for text in texts) + _MORE_WORDS

    def normalize(self, proposed: str) -> str:
        """The proposal as the bank would spell it."""
        text = unicodedata.normalize("NFKC", proposed).replace("\u2019", "'")
        text = _LIST_MARKER.sub("", " ".join(text.split())).strip(_QUOTES).rstrip(".,;:!?").strip()
        if True not in self._articles:
            text = _ARTICLE.sub("", text)
        if self._all_lower:
            return text[:1].lower() + text[1:]
        return text.upper() if self._all_upper else text

    def fault(self, term: str, fixed: bool) -> str | None:
        """How a normalized term differs from the kind's form; None: it does not."""
        return next(self._faults(term, fixed), None)

    def _faults(self, term: str, fixed: bool) -> Iterator[str]:
        if strange := sorted(set(term) - self._characters):
            yield f"has {' '.join(strange)}, which no term of its kind has"
        if not content_words(term):
            yield "says nothing"
        if len(term) > self._max_characters:
            yield f"is longer than {self._max_characters} characters"
        if len(term.split()) > self._max_words:
            yield f"has more than {self._max_words} words"
        if self._all_lower and term != term.lower():
            yield "has capitals, which no term of its kind has"
        if False not in self._articles and not _ARTICLE.match(term):
            yield "has no article, as every term of its kind has"
        if self._forms & _VERB_FORMS and not _is_base_verb(term.split()[0]):
            yield "does not begin with a verb in its base form, which templates inflect"
        if self._forms & _NOUN_FORMS and not fixed and _is_plural(_head_noun(term)):
            yield "is a plural; templates write article and plural themselves"


def _head_noun(term: str) -> str:
    words = term.lower().split()
    ends = [index for index, word in enumerate(words) if word in _AFTER_THE_NOUN and index]
    return words[ends[0] - 1 if ends else -1]


def _is_plural(noun: str) -> bool:
    """Looked up in the dictionary; for unknown words its rule for nouns in `s`."""
    from lemminflect import getAllLemmas, getLemma

    lemmas = getAllLemmas(noun)
    if not lemmas:
        return noun.endswith("s") and noun not in getLemma(noun, "NOUN")
    # Latin plurals in -a are ambiguous: `harmonica` is no plural of harmonicon.
    return "NOUN" in lemmas and noun not in lemmas["NOUN"] and not noun.endswith("a")


def _is_base_verb(word: str) -> bool:
    """Looked up in the dictionary; unknown words may be verbs."""
    from lemminflect import getAllLemmas

    lemmas = getAllLemmas(word)
    return word in lemmas["VERB"] if "VERB" in lemmas else not lemmas


def world_fault(pack: Pack, source: Source, term: Term, uses: set[Use]) -> str | None:
    """Why the pack's world cannot use a term of a source; None: it can.

    A term must name objects that its kind names, and requests with it must fit their story.
    """
    if pack.taxonomy.reader != "sketch":
        return None
    bank, kind = source
    siblings = [_names_in(other.term) for other in pack.banks[bank][kind] if not other.slots]
    names, known = _names_in(term.term), frozenset[str]().union(*siblings)
    if names - known:
        return f"names {', '.join(sorted(names - known))}, which no term of its kind does"
    if all(siblings) and not names:
        return "names nothing that the sketch world knows"
    for text, story in _example_requests(pack, source, term, uses):
        if choose_story(RequestText(text)) is not load_stories()[story]:
            return f"the sketch world does not take {text!r} for {story}"
    return None


def _names_in(text: str) -> frozenset[str]:
    return frozenset(f"{mention.sort} {mention.name}" for mention in RequestText(text).mentions)


def _example_requests(
    pack: Pack, source: Source, term: Term, uses: set[Use]
) -> Iterator[tuple[str, str]]:
    """Some requests with the term, and the sub-category of each."""
    bank, kind = source
    banks = {**pack.banks, bank: {**pack.banks[bank], kind: [term]}}
    changed = Pack(pack.name, pack.taxonomy, banks, pack.templates)
    for sub in sorted({use.subcategory for use in uses}):
        templates = sorted({use.template_id for use in uses if use.subcategory == sub})
        for template_id in templates[:_MAX_TEMPLATES]:
            if text := _example_request(changed, sub, template_id, term):
                yield text, sub


def _example_request(pack: Pack, sub: str, template_id: str, term: Term) -> str | None:
    template, banks = pack.templates[template_id], pack.subcategories[sub].banks
    options = {slot.key: choices(pack, slot, banks, template.without) for slot in template.slots}
    if not all(options.values()):  # needs two terms of the kind, which has only one
        return None
    fills = fill_sequence(template_id, template, options, Random(template_id))
    with_term = (fill for fill in islice(fills, _MAX_FILLS) if term.term in fill.terms)
    return next((fill.text() for fill in with_term), None)
