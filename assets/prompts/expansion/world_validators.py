"""Whether the world of a pack understands a term that is to be added: `reader` in its taxonomy."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from random import Random

from inference.sketch_world.request_parser import Reading
from inference.sketch_world.story_catalog import load_catalog

from ..pack import Pack, Term
from ..template_fills import FillSequence, choices
from .usage import Source, Use

Reader = Callable[[Source, Term, set[Use]], str | None]
_TEMPLATES_TRIED = 3  # of a sub-category
_FILLINGS_TRIED = 20  # of a template, to find one with the term


def reader_of(pack: Pack) -> Reader:
    """What says in a few words why a term of a source cannot be read, or None."""
    return partial(_sketch_fault, pack) if pack.taxonomy.reader == "sketch" else _anybody


def _anybody(_source: Source, _term: Term, _uses: set[Use]) -> None:
    return None


def _sketch_fault(pack: Pack, source: Source, term: Term, uses: set[Use]) -> str | None:
    """It must name things that its kind names already, and lead to the sub-category's story."""
    bank, kind = source
    siblings = [_named(other.term) for other in pack.banks[bank][kind] if not other.slots]
    named, known = _named(term.term), frozenset[str]().union(*siblings)
    if named - known:
        return f"names {', '.join(sorted(named - known))}, which no term of its kind does"
    if all(siblings) and not named:
        return "names nothing that the sketch world knows"
    for text, story in _requests(pack, source, term, uses):
        if load_catalog().choose(Reading(text)) is not load_catalog().stories[story]:
            return f"the sketch world does not take {text!r} for {story}"
    return None


def _named(text: str) -> frozenset[str]:
    return frozenset(f"{mention.sort} {mention.name}" for mention in Reading(text).mentions)


def _requests(pack: Pack, source: Source, term: Term, uses: set[Use]) -> Iterator[tuple[str, str]]:
    """Some requests with the term, and the sub-category of each."""
    bank, kind = source
    banks = {**pack.banks, bank: {**pack.banks[bank], kind: [term]}}
    changed = Pack(pack.name, pack.taxonomy, banks, pack.templates)
    for sub in sorted({use.subcategory for use in uses}):
        templates = sorted({use.template_id for use in uses if use.subcategory == sub})
        for template_id in templates[:_TEMPLATES_TRIED]:
            if text := _request(changed, sub, template_id, term):
                yield text, sub


def _request(pack: Pack, sub: str, template_id: str, term: Term) -> str | None:
    template, banks = pack.templates[template_id], pack.subcategories[sub].banks
    options = {slot.key: choices(pack, slot, banks) for slot in template.slots}
    if not all(options.values()):  # two terms are wanted, and there is one
        return None
    walk = FillSequence(template_id, template, options, Random(template_id))
    fillings = islice(walk, _FILLINGS_TRIED)
    return next((filling.text() for filling in fillings if term.term in filling.terms), None)
