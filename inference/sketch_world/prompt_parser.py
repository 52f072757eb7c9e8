"""Parses prompts into commands; `prompt_writer` is the inverse.

The grammar is `grammar.lark`, documented in `docs/sketch.md`. Parsing never fails: a sentence
outside the grammar asks for nothing, as with a real image model.
"""

import re
from functools import cache, lru_cache
from importlib import resources
from itertools import chain

from lark import Lark, Token, Transformer, UnexpectedInput, v_args

from .object_catalog import BACKGROUNDS, COLOURS, KINDS
from .scene import (
    ANYWHERE,
    Add,
    Command,
    Create,
    Direction,
    GridPlace,
    Move,
    Recolour,
    Remove,
    Replace,
    SetBackground,
    Target,
)

_KEEP = object()
_DIGIT_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NUMBERS = {word: number for number, word in enumerate(_DIGIT_WORDS, 1)} | {
    "several": 3,
    "a few": 3,
}
_SIDES = {"left": 3, "right": 5, "top": 1, "bottom": 7, "center": 4}
_ROWS = {"top": 0, "upper": 0, "middle": 1, "center": 1, "bottom": 2, "lower": 2}
_COLUMNS = {"left": 0, "center": 1, "middle": 1, "right": 2}
_RELATIONS: tuple[tuple[str, Direction], ...] = (
    (r"left", "left of"),
    (r"right (side )?of", "right of"),
    (r"above|over|on top", "above"),
    (r"below|under|beneath", "below"),
    (r"", "next to"),
)
_SINGULARS = {kind.plural: kind.name for kind in KINDS.values()}


@lru_cache(maxsize=8192)
def parse(text: str) -> Command:
    """What a prompt asks for. Sentences that are not understood are ignored."""
    sentences = re.split(r"[.!?;:\n]+", text.lower().replace('"', " "))
    meanings = list(chain.from_iterable(map(_parse_sentence, sentences)))
    edits = tuple(meaning for meaning in meanings if meaning is not _KEEP)
    return Command(edits, keep=_KEEP in meanings)


def _parse_sentence(sentence: str) -> list:
    sentence = " ".join(sentence.split())
    if not sentence:
        return []
    try:
        return _TRANSFORMER.transform(_parser().parse(sentence))
    except UnexpectedInput:
        return []


@cache
def _parser() -> Lark:
    grammar = resources.files(__package__).joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar + _vocabulary(), parser="lalr", lexer="contextual", maybe_placeholders=True)


def _vocabulary() -> str:
    """The terminals of the grammar that come from `object_catalog`."""
    nouns = [name for kind in KINDS.values() for name in (kind.name, kind.plural)]
    return (
        f"\nCOLOUR: {_alternatives([*COLOURS, 'grey'])}"
        f"\nKIND: {_alternatives(nouns)}"
        f"\nBACKGROUND: {_alternatives(BACKGROUNDS)}\n"
    )


def _alternatives(words: list[str] | tuple[str, ...]) -> str:
    return f"/(?:{'|'.join(sorted(words, key=len, reverse=True))})\\b/"


def _cell(words: str) -> int:
    """The cell that `at the upper left corner` or `in the middle` names."""
    names = re.findall(r"[a-z]+", words.replace("centre", "center"))
    rows = [name for name in names if name in _ROWS or name in _COLUMNS]
    if len(rows) == 1:
        return _SIDES["center" if rows[0] == "middle" else rows[0]]
    return 3 * _ROWS[rows[0]] + _COLUMNS[rows[1]]


def _direction(words: str) -> Direction:
    return next(name for pattern, name in _RELATIONS if re.search(pattern, words))


@v_args(inline=True)
class _EditTransformer(Transformer):
    """Turns the parse tree of a sentence into edits (and `_KEEP`)."""

    def start(self, *clauses: list) -> list:
        meanings: list = []
        for clause in clauses:
            meanings = self._join(meanings, *clause)
        return meanings

    def _join(self, before: list, *meanings: object) -> list:
        """Clauses without a verb belong to the one before them."""
        for meaning in meanings:
            if not isinstance(meaning, _Continuation):
                before = [*before, meaning]
            elif before:
                before = [*before[:-1], *meaning.join(before[-1])]
        return before

    def create(self, background: Token, adds: list | None) -> list:
        edits = [edit for edit in adds or [] if isinstance(edit, Add)]
        return [Create(str(background), tuple(edits))]

    def add(self, what: "list | Target") -> list:
        return _add_definite(what) if isinstance(what, Target) else what

    def remove(self, target: Target) -> list:
        return [Remove(target)]

    def recolour(self, target: Target, colour: str) -> list:
        return [Recolour(target, colour)]

    def move(self, target: Target, place: GridPlace | None) -> list:
        if place is None:  # "put the cat in the center": the place is where it goes
            place = GridPlace(cell=target.cell)
            target = Target(target.kind, target.colour)
        return [Move(target, place)]

    def replace(self, target: Target, noun: tuple) -> list:
        colour, kind = noun
        return [Replace(target, kind, colour)]

    def set_background(self, background: Token) -> list:
        return [SetBackground(str(background))]

    def keep(self, _: Token) -> list:
        return [_KEEP]

    def more(self, what: "list | Target") -> list:
        return [_Continuation(what)]

    def thing(
        self, count: int, noun: tuple, place: GridPlace | None, surface: SetBackground | None
    ) -> list:
        colour, kind = noun
        first = Add(kind, colour, place or ANYWHERE)
        others = Add(kind, colour, ANYWHERE if first.place.cell is not None else first.place)
        return [first, *[others] * (count - 1), *([surface] if surface else [])]

    def count(self, number: Token | None = None) -> int:
        return 1 if number is None else _NUMBERS.get(number, 2)  # "some", "a pair of"

    def noun(self, colour: str | None, kind: str) -> tuple:
        return colour, kind

    def target(self, colour: str | None, kind: str | None, at: str | None) -> Target:
        return Target(kind, colour, at if at is None else _cell(at))

    def cell(self, words: Token) -> GridPlace:
        return GridPlace(cell=_cell(words))

    def relation(self, words: Token, target: Target) -> GridPlace:
        return GridPlace(direction=_direction(words), anchor=target)

    def anywhere(self, _: Token) -> GridPlace:
        return ANYWHERE

    def surface(self, background: Token) -> SetBackground:
        return SetBackground(str(background))

    def SOMETHING(self, _: Token) -> None:  # noqa: N802 - lark names terminals so
        return None

    def COLOUR(self, token: Token) -> str:  # noqa: N802 - lark names terminals so
        return "gray" if token == "grey" else str(token)

    def KIND(self, token: Token) -> str:  # noqa: N802 - lark names terminals so
        return _SINGULARS.get(str(token), str(token))


class _Continuation:
    """A thing or a target without a verb of its own."""

    def __init__(self, what: "list | Target") -> None:
        self.what = what

    def join(self, edit: object) -> list:
        """The preceding edit with this thing or target added to it."""
        if isinstance(self.what, Target):
            return [edit, *self._with_target(edit, self.what)]
        if isinstance(edit, Create):
            adds = tuple(add for add in self.what if isinstance(add, Add))
            return [Create(edit.background, edit.things + adds)]
        return [edit, *self.what] if isinstance(edit, Add) else [edit]

    def _with_target(self, edit: object, target: Target) -> list:
        match edit:
            case Remove():
                return [Remove(target)]
            case Add():
                return _add_definite(target)
            case _:
                return []


def _add_definite(target: Target) -> list:
    """`draw the sun at the top right` adds one."""
    return [Add(target.kind, target.colour, GridPlace(cell=target.cell))] if target.kind else []


_TRANSFORMER = _EditTransformer()
