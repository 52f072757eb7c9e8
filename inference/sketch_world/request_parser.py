"""What a user's request names and how the answer should look, read word by word.

`RequestText` is what the whole says; `tokenize` gives `instructions` its words with their sorts.

Requests are free English, so this finds words, not sentences: every name that the sketch world
knows (`object_catalog`, and the synonyms of `words.yaml`), in the order of the text.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, pairwise
from typing import get_args

from .object_catalog import BACKGROUNDS, COLOURS, COLUMNS, KINDS, ROWS, read_data
from .scene import Direction

_CAPTIONS = re.compile(r"\btextual|\bcaption|\bin text\b|\bwith (a )?(short )?texts?\b|\bsentence")
_DESCRIPTION = re.compile(r"\bdescri(be|ption)\b|\bin words\b")
_EXPLANATION = re.compile(r"\b(descri|explain|caption)")
_QUESTIONS = re.compile(r"\b(tell|say|what|which|why|how many)\b")
_DRAWING = re.compile(r"\b(draw|paint|illustrat\w*|continue|next|generate|complete|finish|rest)\b")
_VISUAL = re.compile(r"\b(show|visual)")
# Books as the requested format, not things in an image.
_BOOKS = r"\b(picture|photo|comic|story|sketch|exercise|note|colou?ring)[ -]books?\b"
_STEP_NOUN = r"(steps?|pictures?|images?|parts?|stages?|frames?|panels?|drawings?)"
_QUALIFIER = (
    r"(?:(?:most|important|simple|easy|short|clear|sequential|different|single|small|key) )*"
)
_SIZES = ("", "little", "small", "big")  # may be between a colour and its thing
_STEP_NUMBER = re.compile(r"\bstep (\d+)\b")
_COUNT = (
    r"(\d{1,3}|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|(?<=in )one(?= (?:picture|image|drawing)\b(?! at a time| after)))"
)
_STEP_COUNT = re.compile(rf"\b{_COUNT} {_QUALIFIER}{_STEP_NOUN}\b")

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
    """A word or phrase that means something, by its name in the world.

    `sort`: of a word list (thing, background, colour, number ...); `word`: unknown; `stop`: the end
    of a sentence.
    """

    sort: str
    name: str
    start: int
    end: int


@dataclass(frozen=True)
class RequestText:
    """The text of a request, `raw`, and what it says."""

    raw: str

    @cached_property
    def mentions(self) -> tuple[Token, ...]:
        """All names of the world, in the text's order; longer names win over shorter."""
        matches = _pattern().finditer(self.plain)
        return tuple(Token(*lexicon()[match[0]], *match.span()) for match in matches)

    @cached_property
    def words(self) -> str:
        """The text's words in lower case, with a space before each."""
        return "".join(f" {word}" for word in re.findall(r"[a-z]+", self.plain))

    @cached_property
    def wants_captions(self) -> bool:
        return bool(_CAPTIONS.search(self.raw.lower()))

    @cached_property
    def wants_description(self) -> bool:
        return bool(_DESCRIPTION.search(self.raw.lower()))

    @cached_property
    def wants_words_only(self) -> bool:
        """Whether it asks for words about the input images, and for no image."""
        text = self.raw.lower()
        is_question = _QUESTIONS.search(text) and not _VISUAL.search(text)
        return not _DRAWING.search(text) and bool(_EXPLANATION.search(text) or is_question)

    @cached_property
    def completed_steps(self) -> int:
        """The highest step number that the request lists as completed; 0: none."""
        return max((int(number) for number in _STEP_NUMBER.findall(self.raw.lower())), default=0)

    @cached_property
    def step_count(self) -> int | None:
        """The requested number of steps; None: the text names none."""
        match = _STEP_COUNT.search(self._normalized)
        if match is None:
            return None
        return int(match[1] if match[1].isdecimal() else lexicon()[match[1]][1])

    @cached_property
    def plain(self) -> str:
        """The lower-case text without step counts, which do not count things."""
        return _STEP_COUNT.sub(" ", self._normalized)

    @cached_property
    def _normalized(self) -> str:
        text = re.sub(rf"<image>|\bstep \d+\b|{_BOOKS}", " ", self.raw.lower())
        return re.sub(r"[-_]", " ", text)

    def names_of(self, sort: str) -> list[str]:
        return [mention.name for mention in self.mentions if mention.sort == sort]

    def colours_of(self, kind: str) -> list[str]:
        """Colours right before a name of this kind: `red` in "a red flower"."""
        return [colour.name for colour, owner in self._owners.items() if owner == kind]

    def possible_colours(self, kind: str) -> list[str]:
        """Colours that may belong to a kind: all but those of other kinds."""
        colours = (mention for mention in self.mentions if mention.sort == "colour")
        return [c.name for c in colours if self._owners.get(c, kind) == kind]

    @cached_property
    def _owners(self) -> dict[Token, str]:
        """The kinds of colours that are right before a thing."""
        return {
            colour: noun.name
            for colour, noun in pairwise(self.mentions)
            if (colour.sort, noun.sort) == ("colour", "thing")
            and self.plain[colour.end : noun.start].strip() in _SIZES
        }


@cache
def lexicon() -> dict[str, tuple[str, str]]:
    """Every name in lower case, with its sort and its name in `object_catalog`."""
    synonyms: dict[str, dict[str, list[str]]] = read_data("words")  # sort -> name -> other names
    names = {digit: ("number", digit) for digit in synonyms["numbers"]}
    names |= {colour: ("colour", colour) for colour in COLOURS}
    names |= {background: ("background", background) for background in BACKGROUNDS}
    for kind in KINDS.values():
        names |= dict.fromkeys((kind.name, kind.plural), ("thing", kind.name))
    for key, names_of_sort in synonyms.items():
        for name, aliases in names_of_sort.items():
            for alias in aliases:
                plain = alias.replace("-", " ")
                names |= dict.fromkeys(_with_plural(plain), (key.removesuffix("s"), name))
    return names


def is_number(word: str) -> bool:
    return word.isdecimal() or lexicon().get(word, ("",))[0] == "number"


@cache
def plurals() -> frozenset[str]:
    """The names of things that mean several of them."""
    singular = {kind.name for kind in KINDS.values()}
    own = frozenset(kind.plural for kind in KINDS.values()) - singular
    aliases = chain.from_iterable(read_data("words")["things"].values())
    return own | {_with_plural(alias.replace("-", " "))[1] for alias in aliases}


def _with_plural(noun: str) -> tuple[str, str]:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun, f"{noun[:-1]}ies"
    return noun, f"{noun}es" if noun.endswith(("x", "s", "ch")) else f"{noun}s"


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{_any_of(lexicon())})\b")


@cache
def english(sort: str) -> frozenset[str]:
    """Common words of a sort (`english.yaml`), by what they say about nouns.

    `openers`: a noun may follow. `separators`: no nouns, adjectives or adverbs: openers, verbs,
    pronouns and so on. `neutral`: nouns that name no thing to draw: steps, pictures, ways, times.
    `foreign`: common words of other languages that are none of English. `undrawn`: of these, words
    that say what no picture of this world shows: actions, sizes. `meaningless`: words that change
    nothing about what to draw.
    """
    if sort == "meaningless":
        return (english("separators") | english("neutral")) - english("undrawn")
    words = frozenset(read_data("english")[sort].split())
    return words | english("openers") if sort == "separators" else words


def tokenize(text: str) -> list[Token]:
    """The words that mean something, and a stop after the last one."""
    tokens = []
    for match in _token_pattern().finditer(text):
        written, sort = match[0], match.lastgroup or ""
        name, bare = written, written.removesuffix("'s")
        if sort == "stop":
            sort = "join" if written in ",:;" else "stop"
        elif not sort:
            sort, name = _word_sorts().get(bare, ("word", written))
        if sort != "word" or bare not in english("meaningless"):
            tokens.append(Token(sort, name, *match.span()))
    return [*tokens, Token("stop", ".", len(text), len(text))]


@cache
def _word_sorts() -> Mapping[str, tuple[str, str]]:
    """Every word and phrase -> its sort and its name."""
    own = {
        str(phrase): (sort, str(phrase))
        for sort, phrases in read_data("instructions").items()
        for phrase in phrases
    }
    return own | {written: entry for written, entry in lexicon().items() if written not in own}


@cache
def _token_pattern() -> re.Pattern[str]:
    relations = [written for written, (sort, _) in _word_sorts().items() if sort in DIRECTIONS]
    phrases = [written for written in _word_sorts() if not _WORD.fullmatch(written)]
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
    return word in english("undrawn") or is_form
