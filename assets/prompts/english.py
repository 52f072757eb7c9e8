"""English forms of a term: articles, plurals, verb forms.

Nouns follow `inflect`, verbs the word list of `lemminflect`; a term's own forms in its bank come
first. A verb phrase starts with its verb, or two: `make a kite` -> `making a kite`, `wash and dry
a plate` -> `washing and drying a plate`.
"""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inflect import engine

_VERB_TAGS = {"gerund": "VBG", "third": "VBZ", "past": "VBD"}


@cache
def inflected(phrase: str, form: str | None, fixed: bool = False) -> str:
    """A base phrase in a form of `pack.Form`; `fixed` phrases take no article and no plural."""
    if form in _VERB_TAGS:
        return _verb_phrase(phrase, _VERB_TAGS[form])
    if form is None or fixed:
        return phrase
    if form == "a":
        return str(_engine().a(phrase))
    return f"the {phrase}" if form == "the" else str(_engine().plural_noun(phrase))


def sentence(text: str) -> str:
    """The text with its first letter capitalised."""
    return text[:1].upper() + text[1:]


def with_suffix(text: str, suffix: str) -> str:
    """Text and suffix: a capital starts a sentence of its own, else the last one goes on."""
    if not suffix:
        return text
    bare, end = (text[:-1], text[-1]) if text[-1] in ".?!" else (text, "")
    if suffix[0].isupper():
        return f"{bare}{end or '.'} {suffix}"
    return f"{bare} {suffix}{end}"


def _verb_phrase(phrase: str, tag: str) -> str:
    words = phrase.split(" ")
    words[0] = _verb(words[0], tag)
    if words[1:2] == ["and"]:
        words[2] = _verb(words[2], tag)
    return " ".join(words)


def _verb(verb: str, tag: str) -> str:
    from lemminflect import getInflection

    return str(getInflection(verb, tag=tag)[0])


@cache
def _engine() -> "engine":
    import inflect

    return inflect.engine()
