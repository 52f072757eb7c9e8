"""English forms of a term: articles, plurals, verb forms.

Nouns follow `inflect`, verbs the word list of `lemminflect`; a term's own forms in its bank come
first. A verb phrase starts with one or two verbs: `make a kite` -> `making a kite`, `wash and dry
a plate` -> `washing and drying a plate`.
"""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inflect import engine

_VERB_TAGS = {"gerund": "VBG", "third": "VBZ", "past": "VBD"}


@cache
def apply_form(phrase: str, form: str | None, fixed: bool = False) -> str:
    """Inflect a base phrase to a form of `pack.Form`; `fixed`: no article and no plural."""
    if form in _VERB_TAGS:
        return _inflect_verb_phrase(phrase, _VERB_TAGS[form])
    if form is None or fixed:
        return phrase
    if form == "a":
        return str(_engine().a(phrase))
    return f"the {phrase}" if form == "the" else str(_engine().plural_noun(phrase))


def append_suffix(text: str, suffix: str) -> str:
    """Add a suffix: as a sentence of its own if it is capitalised, else within the last one."""
    if not suffix:
        return text
    bare, end = (text[:-1], text[-1]) if text[-1] in ".?!" else (text, "")
    if suffix[0].isupper():
        return f"{bare}{end or '.'} {suffix}"
    return f"{bare} {suffix}{end}"


def _inflect_verb_phrase(phrase: str, tag: str) -> str:
    from lemminflect import getInflection

    words = phrase.split(" ")
    for position in (0, 2) if words[1:2] == ["and"] else (0,):
        words[position] = getInflection(words[position], tag=tag)[0]
    return " ".join(words)


@cache
def _engine() -> "engine":
    """inflect without its type checks: typeguard takes 6 s to compile them on every import."""
    import typeguard

    typechecked = typeguard.typechecked
    typeguard.typechecked = lambda function: function  # type: ignore[assignment]
    try:
        import inflect
    finally:
        typeguard.typechecked = typechecked
    return inflect.engine()
