"""Parses prompts into commands; `prompt_writer` is the inverse.

The grammar is `grammar.lark`, documented in `docs/sketch.md`. Parsing never fails: a sentence
outside the grammar asks for nothing, as with a real image model.
"""

import re
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

from lark import Lark, Token, Transformer, UnexpectedInput, v_args

from .object_catalog import BACKGROUNDS, COLOURS, COLUMNS, KINDS, ROWS
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

_Noun = tuple[str, str | None]  # kind, colour

_KEEP = object()
_DIGIT_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_NUMBERS = {word: n for n, word in enumerate(_DIGIT_WORDS, 1)} | {"several": 3, "a few": 3}
_SIDES = {"left": 3, "right": 5, "top": 1, "bottom": 7, "center": 4, "middle": 4}
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
    meanings = [meaning for sentence in sentences for meaning in _parse_sentence(sentence)]
    edits = tuple(meaning for meaning in meanings if meaning is not _KEEP)
    return Command(edits, keep=_KEEP in meanings)


def _parse_sentence(sentence: str) -> list:
    try:
        return _EditTransformer().transform(_parser().parse(" ".join(sentence.split())))
    except UnexpectedInput:
        return []


@cache
def _parser() -> Lark:
    """The grammar, with the terminals that come from `object_catalog`."""
    grammar = resources.files(__package__).joinpath("grammar.lark").read_text("utf-8")
    nouns = [name for kind in KINDS.values() for name in (kind.name, kind.plural)]
    words = {"COLOUR": [*COLOURS, "grey"], "KIND": nouns, "BACKGROUND": BACKGROUNDS}
    for name, names in words.items():
        longest_first = sorted(names, key=len, reverse=True)
        grammar += f"{name}: /(?:{'|'.join(longest_first)})\\b/\n"
    return Lark(grammar, parser="lalr")


def _cell(words: str) -> int:
    """The cell that `at the upper left corner` or `in the middle` names."""
    names = re.findall(r"[a-z]+", words.replace("centre", "center"))
    row, *column = [name for name in names if name in ROWS or name in COLUMNS]
    return 3 * ROWS[row] + COLUMNS[column[0]] if column else _SIDES[row]


class _Continuation(NamedTuple):
    """Things or a target without a verb of their own: they belong to the edit before them."""

    what: list | Target


@v_args(inline=True)
class _EditTransformer(Transformer):
    """Turns clauses into edits, lists of edits (and `_KEEP`) or continuations."""

    remove, recolour, more = Remove, Recolour, _Continuation
    set_background = surface = SetBackground
    cell = GridPlace
    BACKGROUND = str
    AT_CELL = TO_CELL = staticmethod(_cell)

    def start(self, *clauses: object) -> list:
        meanings: list = []
        for clause in clauses:
            if isinstance(clause, _Continuation):
                meanings[-1:] = _continue(meanings[-1], clause.what) if meanings else []
            else:
                meanings += clause if isinstance(clause, list) else [clause]
        return meanings

    def create(self, background: str, adds: list | None) -> Create:
        return _with_things(Create(background), adds or [])

    def add(self, what: list | Target) -> list:
        return _add_definite(what) if isinstance(what, Target) else what

    def move(self, target: Target, place: GridPlace | None) -> Move:
        if place is None:  # "put the cat in the center": the place is where it goes
            return Move(Target(target.kind, target.colour), GridPlace(target.cell))
        return Move(target, place)

    def replace(self, target: Target, noun: _Noun) -> Replace:
        return Replace(target, *noun)

    def keep(self, _: Token) -> object:
        return _KEEP

    def thing(
        self, count: int, noun: _Noun, place: GridPlace | None, surface: SetBackground | None
    ) -> list:
        first = Add(*noun, place or ANYWHERE)
        others = Add(*noun, ANYWHERE if first.place.cell is not None else first.place)
        return [first, *[others] * (count - 1), *([surface] if surface else [])]

    def count(self, number: Token | None = None) -> int:
        return 1 if number is None else _NUMBERS.get(number, 2)  # "some", "a pair of"

    def noun(self, colour: str | None, kind: str) -> _Noun:
        return kind, colour

    def target(self, colour: str | None, kind: str | None, cell: int | None) -> Target:
        return Target(kind, colour, cell)

    def relation(self, words: Token, target: Target) -> GridPlace:
        direction = next(name for pattern, name in _RELATIONS if re.search(pattern, words))
        return GridPlace(direction=direction, anchor=target)

    def anywhere(self, _: Token) -> GridPlace:
        return ANYWHERE

    def SOMETHING(self, _: Token) -> None:  # noqa: N802 - lark names terminals so
        return None

    def COLOUR(self, token: Token) -> str:  # noqa: N802 - lark names terminals so
        return "gray" if token == "grey" else str(token)

    def KIND(self, token: Token) -> str:  # noqa: N802 - lark names terminals so
        return _SINGULARS.get(str(token), str(token))


def _continue(edit: object, what: list | Target) -> list:
    match edit, what:
        case Create(), list():
            return [_with_things(edit, what)]
        case Add(), list():
            return [edit, *what]
        case Add(), Target():
            return [edit, *_add_definite(what)]
        case Remove(), Target():
            return [edit, Remove(what)]
    return [edit]


def _with_things(create: Create, meanings: list) -> Create:
    adds = tuple(meaning for meaning in meanings if isinstance(meaning, Add))
    return Create(create.background, create.things + adds)


def _add_definite(target: Target) -> list:
    """`draw the sun at the top right` adds one."""
    return [Add(target.kind, target.colour, GridPlace(target.cell))] if target.kind else []
