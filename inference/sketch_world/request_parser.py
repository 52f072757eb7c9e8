"""What a user's request says: things, colours, numbers, and how the answer should look.

Requests are anybody's English, so this reads words, not sentences: every name that the sketch
world knows (`kinds.py`, and the other names of `words.yaml`), in the order of the text.
"""

import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from itertools import pairwise

import yaml

from .object_catalog import BACKGROUNDS, COLOURS, KINDS

_CAPTIONS = re.compile(r"\btextual|\bcaption|\bin text\b|\bwith (a )?(short )?texts?\b|\bsentence")
_DESCRIBES = re.compile(r"\bdescri(be|ption)\b|\bin words\b")
_EXPLAINS = re.compile(r"\b(descri|explain|caption)")
_QUESTIONS = re.compile(r"\b(tell|say|what|which|why|how many)\b")
_GOES_ON = re.compile(r"\b(draw|paint|illustrat\w*|continue|next|generate|complete|finish|rest)\b")
_SHOWS = re.compile(r"\b(show|visual)")
# Books that are asked for, and no things in a picture.
_BOOKS = r"\b(picture|photo|comic|story|sketch|exercise|note|colou?ring)[ -]books?\b"
_PICTURES = r"(steps?|pictures?|images?|parts?|stages?|frames?|panels?|drawings?)"
_SUCH = r"(?:(?:most|important|simple|easy|short|clear|sequential|different|single|small|key) )*"
_EARLIER_STEP = re.compile(r"\bstep (\d+)\b")
_STEP_COUNT = re.compile(rf"\b(\d+|two|three|four|five|six|seven|eight|nine) {_SUCH}{_PICTURES}\b")


@dataclass(frozen=True)
class Mention:
    """A name of the world in a request. `sort`: thing, background, colour or number."""

    sort: str
    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Reading:
    """A request, read."""

    text: str

    @cached_property
    def mentions(self) -> tuple[Mention, ...]:
        """Everything the world knows, in the text's order; longer names win over shorter."""
        found = (
            Mention(*_lexicon()[match[0]], match.start(), match.end())
            for match in _pattern().finditer(self._told)
        )
        return tuple(found)

    @cached_property
    def words(self) -> str:
        """The text's words in lower case, with a space before each."""
        return "".join(f" {word}" for word in re.findall(r"[a-z]+", self._told))

    @cached_property
    def wants_captions(self) -> bool:
        return bool(_CAPTIONS.search(self.text.lower()))

    @cached_property
    def describes(self) -> bool:
        """It asks for a description in words."""
        return bool(_DESCRIBES.search(self.text.lower()))

    @cached_property
    def asks_for_words_only(self) -> bool:
        """It asks to put into words what is given, and for no picture."""
        text = self.text.lower()
        if _GOES_ON.search(text):
            return False
        return bool(_EXPLAINS.search(text) or (_QUESTIONS.search(text) and not _SHOWS.search(text)))

    @cached_property
    def earlier_steps(self) -> int:
        """The highest step number that the request lists as done already."""
        return max((int(number) for number in _EARLIER_STEP.findall(self.text.lower())), default=0)

    @cached_property
    def step_count(self) -> int | None:
        """The number of steps asked for, where the text names one."""
        found = _STEP_COUNT.search(self._plain)
        return int(_lexicon()[found[1]][1]) if found and found[1] in _lexicon() else None

    @cached_property
    def _told(self) -> str:
        """The lower-case text without step counts, which are no numbers of things."""
        return _STEP_COUNT.sub(" ", self._plain)

    @cached_property
    def _plain(self) -> str:
        text = re.sub(rf"<image>|\bstep \d+\b|{_BOOKS}", " ", self.text.lower())
        return re.sub(r"[-_]", " ", text)

    def colours_of(self, kind: str) -> list[str]:
        """Colours right before a name of this kind: `red` in "a red flower"."""
        return [colour.name for colour, noun in self._coloured if noun.name == kind]

    def named(self, sort: str) -> list[str]:
        """All names of a sort, in the text's order."""
        return [mention.name for mention in self.mentions if mention.sort == sort]

    def named_for(self, kind: str) -> list[str]:
        """Colours that may be meant for a kind: all but those that other things have."""
        others = [colour for colour, noun in self._coloured if noun.name != kind]
        colours = (mention for mention in self.mentions if mention.sort == "colour")
        return [colour.name for colour in colours if colour not in others]

    @cached_property
    def _coloured(self) -> list[tuple[Mention, Mention]]:
        """Colours and the things right after them."""
        pairs = ((c, n) for c, n in pairwise(self.mentions) if c.sort == "colour")
        return [(c, n) for c, n in pairs if n.sort == "thing" and self._adjoin(c, n)]

    def _adjoin(self, colour: Mention, noun: Mention) -> bool:
        return self._told[colour.end : noun.start].strip() in ("", "little", "small", "big")


@cache
def _lexicon() -> dict[str, tuple[str, str]]:
    """Every name in lower case, to its sort and its name in `kinds`."""
    text = resources.files(__package__).joinpath("words.yaml").read_text("utf-8")
    others = yaml.safe_load(text)
    names = {digit: ("number", digit) for digit in others["numbers"]}
    names |= {colour: ("colour", colour) for colour in COLOURS}
    names |= {background: ("background", background) for background in BACKGROUNDS}
    for kind in KINDS.values():
        names |= dict.fromkeys((kind.name, kind.plural), ("thing", kind.name))
    for key, synonyms in others.items():
        for name, aliases in synonyms.items():
            for alias in aliases:
                plain = alias.replace("-", " ")
                names |= dict.fromkeys(_with_plural(plain), (key.removesuffix("s"), name))
    return names


def _with_plural(noun: str) -> tuple[str, str]:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun, f"{noun[:-1]}ies"
    return noun, f"{noun}es" if noun.endswith(("x", "s", "ch")) else f"{noun}s"


@cache
def _pattern() -> re.Pattern[str]:
    names = sorted(_lexicon(), key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
