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


def capitalize(text: str) -> str:
    """The text with its first letter capitalised."""
    return text[:1].upper() + text[1:]


def append_suffix(text: str, suffix: str) -> str:
    """Add a suffix: as a sentence of its own if it is capitalised, else within the last one."""
    if not suffix:
        return text
    bare, end = (text[:-1], text[-1]) if text[-1] in ".?!" else (text, "")
    if suffix[0].isupper():
        return f"{bare}{end or '.'} {suffix}"
    return f"{bare} {suffix}{end}"


def _inflect_verb_phrase(phrase: str, tag: str) -> str:
    words = phrase.split(" ")
    words[0] = _inflect_verb(words[0], tag)
    if words[1:2] == ["and"]:
        words[2] = _inflect_verb(words[2], tag)
    return " ".join(words)


def _inflect_verb(verb: str, tag: str) -> str:
    from lemminflect import getInflection

    return str(getInflection(verb, tag=tag)[0])


@cache
def _engine() -> "engine":
    import inflect

    return inflect.engine()
