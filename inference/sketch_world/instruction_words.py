"""The words of a request that mean something, and their sorts (`instructions.yaml`)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import get_args

from .object_catalog import COLUMNS, ROWS, read_data
from .request_parser import english, lexicon
from .scene import Direction

Area = frozenset[int]
"""Cells of the grid, where a request names no exact one."""

DIRECTIONS: Mapping[str, Direction] = {name: name for name in get_args(Direction)}
AREAS: Mapping[str, Area] = {
    "left": frozenset((0, 3, 6)),
    "right": frozenset((2, 5, 8)),
    **dict.fromkeys(("top", "upper", "sky"), frozenset((0, 1, 2))),
    **dict.fromkeys(("bottom", "lower", "ground"), frozenset((6, 7, 8))),
    **dict.fromkeys(("middle", "center", "centre"), frozenset((4,))),
    "corner": frozenset((0, 2, 6, 8)),
}
_PLACE = (
    r"(?:(?:at|in|on|to|into|towards?) (?:the |a )?(?:very )?(?:sky|ground|corner)"
    r"|(?:(?:at|in|on|to|into|towards?) )?(?:the )?(?:very )?(?:"
    rf"(?:{'|'.join(ROWS)}) (?:{'|'.join(COLUMNS)})(?: hand)?(?: corner| side)?"
    rf"|(?:{'|'.join({**ROWS, **COLUMNS})})(?: hand)?(?: side)?))\b"
    r"(?! of (?!(?:the|this) (?:picture|image|scene|page)))"
)
_WORD = re.compile(r"[^\W_][\w'’]*")


@dataclass(frozen=True)
class Token:
    sort: str  # of a word list; `word`: unknown; `stop`: the end of a sentence
    name: str
    start: int
    end: int


def tokenize(text: str) -> list[Token]:
    """The words that mean something, and a stop after the last one."""
    tokens = []
    for match in _pattern().finditer(text):
        written, sort = match[0], match.lastgroup or ""
        name, bare = written, written.removesuffix("'s")
        if sort == "stop":
            sort = "join" if written in ",:;" else "stop"
        elif not sort:
            sort, name = _sorts().get(bare, ("word", written))
        if sort != "word" or bare not in english().meaningless:
            tokens.append(Token(sort, name, *match.span()))
    return [*tokens, Token("stop", ".", len(text), len(text))]


@cache
def _sorts() -> Mapping[str, tuple[str, str]]:
    """Every word and phrase -> its sort and its name."""
    own = {
        str(phrase): (sort, str(phrase))
        for sort, phrases in read_data("instructions").items()
        for phrase in phrases
    }
    return own | {written: entry for written, entry in lexicon().items() if written not in own}


@cache
def _pattern() -> re.Pattern[str]:
    relations = [written for written, (sort, _) in _sorts().items() if sort in DIRECTIONS]
    phrases = [written for written in _sorts() if not _WORD.fullmatch(written)]
    return re.compile(
        rf"\b(?:{_any_of(relations)})\b|(?P<place>\b{_PLACE})|\b(?:{_any_of(phrases)})\b"
        rf"|(?P<number>\b\d+\b)|{_WORD.pattern}|(?P<stop>[.!?,:;\n])"
    )


def _any_of(phrases: Iterable[str]) -> str:
    """A pattern of all, the longest first."""
    return "|".join(map(re.escape, sorted(phrases, key=len, reverse=True)))


def area_of(words: str) -> Area:
    """The cells that `at the upper left corner`, `in the middle` or `at the top` names."""
    names = [name for name in re.findall(r"[a-z]+", words) if name in AREAS]
    row, *column = names
    if column and row in ROWS and column[0] in COLUMNS:
        return frozenset((3 * ROWS[row] + COLUMNS[column[0]],))
    return AREAS[row]


def is_undrawn(word: str) -> bool:
    is_form = len(word) > 4 and word.endswith(("ing", "ed")) and " " not in word
    return word in english().undrawn or is_form
