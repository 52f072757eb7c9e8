"""What a request tells to do with things, word by word: "remove the tree", "two cats at the top".

A request becomes clauses: a verb, noun phrases, and what becomes of them. Words without meaning
are skipped; every other word that no clause understands is listed, so that nothing is left out
unsaid. `instructed_edits` carries the clauses out.
"""

import re
from dataclasses import dataclass, field, replace

from .request_parser import (
    AREAS,
    DIRECTIONS,
    Area,
    RequestText,
    Token,
    area_of,
    is_undrawn,
    plurals,
    tokenize,
)
from .scene import Direction, Target

_VERBS = ("draw", "add", "put", "remove", "paint", "turn", "move", "swap", "replace")
# After the things that they are about: "a cat comes", "the two change places".
_LATE_VERBS = {"comes": "add", "goes": "remove", "should be": "turn", "swap": "swap"}
_DETERMINERS = ("definite", "indefinite")
_BEFORE_NOUN = (*_DETERMINERS, "every", "several", "number", "colour")
_NOUNS = ("thing", "background", "it", "everything", "thing word")

# Asks for what is the case anyway.
_KEEP = re.compile(
    r"\b(keep|leav(e|ing)|keeping) (everything|all|the rest|the others)( else)?( that is there)?"
    r"( unchanged| as (it|they) (is|are)| as is| the same| alone| already)?\b"
    r"|\bwithout chang(e|ing) (anything|everything)( else)?\b|\bchange nothing else\b"
)
_MAX_COUNT = 100  # more do not fit anyway


@dataclass(frozen=True)
class NounPhrase:
    """Things that a request names.

    Args:
        kind: None: of any kind.
        count: None: some, it is left open how many.
        every: all of them that are there.
        definite: things that are there already, or that were named before.
        negated: none of them.
        area, relation: where; a relation is a direction, seen from another thing.
        words: as written.
    """

    kind: str | None
    colour: str | None = None
    count: int | None = 1
    every: bool = False
    definite: bool = False
    negated: bool = False
    area: Area | None = None
    relation: "Relation | None" = None
    words: str = ""

    @property
    def target(self) -> Target:
        return Target(self.kind, self.colour)


Relation = tuple[Direction, NounPhrase]
"""A direction, seen from a thing."""


@dataclass
class Clause:
    """One instruction.

    Args:
        verb: one of `_VERBS`, or `keep`: nothing is to be done.
        things: what it is about.
        results: what they become.
        colour, colour_of: their new colour, or the thing that has it.
        area, relation: where they go.
        exceptions: what "everything" does not mean.
    """

    verb: str
    things: list[NounPhrase] = field(default_factory=list)
    results: list[NounPhrase] = field(default_factory=list)
    colour: str | None = None
    colour_of: NounPhrase | None = None
    area: Area | None = None
    relation: Relation | None = None
    background: str | None = None
    exceptions: list[NounPhrase] = field(default_factory=list)


@dataclass(frozen=True)
class Instructions:
    """The clauses of a request, and what none of them understands, as written.

    Args:
        unknown: names of things, and numbers and relations that cannot be drawn.
        undrawn: actions, sizes and other words that no picture shows.
    """

    clauses: tuple[Clause, ...]
    unknown: tuple[str, ...] = ()
    undrawn: tuple[str, ...] = ()

    @property
    def background(self) -> str | None:
        """Of a new picture."""
        return next((clause.background for clause in self.clauses if clause.background), None)

    @property
    def things(self) -> list[NounPhrase]:
        return [thing for clause in self.clauses for thing in clause.things]


def read_instructions(text: RequestText) -> Instructions:
    """The instructions of a request, in time linear in its length."""
    return _Reader(_KEEP.sub(" ", text.plain)).read()


class _Reader:
    """Reads the tokens of one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._next = 0
        self._clauses: list[Clause] = []
        self._unknown: list[str] = []
        self._undrawn: list[str] = []
        self._unknown_end = -1  # of the phrase that was found last
        self._last: NounPhrase | None = None  # what "it" is
        self._end_sentence()

    def read(self) -> Instructions:
        while self._next < len(self._tokens):
            token = self._tokens[self._next]
            if token.sort in (*_BEFORE_NOUN, *_NOUNS):
                self._read_noun()
            else:
                self._next += 1
                self._take(token)
        clauses = [each for each in self._clauses if each.things or each.background]
        return Instructions(tuple(clauses), tuple(self._unknown), tuple(self._undrawn))

    def _end_sentence(self) -> None:
        self._clause: Clause | None = None
        self._is_open = False  # the verb may follow
        self._end_phrase()
        self._area: Area | None = None  # before its thing: "at the top a cat"
        self._negated, self._joined = False, ""

    def _end_phrase(self) -> None:
        """What follows a word such as "into" is no longer about the word."""
        self._role = "thing"  # of the next noun in its clause
        self._direction: Direction | None = None
        self._inexpressible: Token | None = None

    def _take(self, token: Token) -> None:
        match token.sort:
            case "stop":
                self._end_sentence()
            case "join":
                self._joined = token.name
                self._area = None if self._role == "thing" else self._area
            case "not":
                self._negated, self._joined = True, ""
            case "place":
                self._place(area_of(token.name))
            case "link":
                self._link(token)
            case "except":
                if self._clause and any(thing.every for thing in self._clause.things):
                    self._role = "exception"
                elif token.name.endswith(" not"):
                    self._negated, self._joined = True, ""
            case "instead of":
                self._role = "instead"
            case "colour of":
                self._colour_of(token)
            case "on" | "in":
                self._preposition(token)
            case "inexpressible":
                self._inexpressible = token
            case "filler":
                pass
            case "word":
                self._add_unknown(token)
            case sort if sort in DIRECTIONS:
                self._relate(DIRECTIONS[sort])
            case sort:
                self._verb(sort, token)

    def _verb(self, sort: str, token: Token) -> None:
        clause = self._clause
        if sort in _LATE_VERBS and self._is_open and clause and clause.things:
            clause.verb, self._is_open = _LATE_VERBS[sort], False
            self._role = "result" if sort == "should be" else "thing"
        elif sort in _VERBS and not self._follows_determiner(token):
            is_kept = self._negated and sort not in ("draw", "add", "put")
            self._begin_clause("keep" if is_kept else sort)
            self._negated = self._negated and not is_kept
        elif sort in _LATE_VERBS:
            self._add_unknown(token)

    def _begin_clause(self, verb: str) -> Clause:
        self._clause = Clause(verb)
        self._clauses.append(self._clause)
        self._is_open = False
        self._end_phrase()
        return self._clause

    def _follows_determiner(self, token: Token) -> bool:
        """Whether it is a noun: "the place"."""
        before = self._tokens[max(0, self._next - 2)]
        return before.sort in _DETERMINERS and before.end + 1 == token.start

    def _link(self, token: Token) -> None:
        clause = self._clause
        if clause is None or not clause.things or self._role != "thing":
            return
        if clause.verb in ("replace", "swap") or (clause.verb == "turn" and token.name != "for"):
            self._role = "result"
        elif clause.verb == "move":
            self._direction = "next to"

    def _colour_of(self, token: Token) -> None:
        if self._clause and self._clause.verb == "swap":
            self._add_unknown(token)
        elif self._clause and self._clause.things:
            self._role = "colour"

    def _relate(self, direction: Direction) -> None:
        if self._next_noun() is not None:
            self._direction = direction
        elif direction in ("left of", "right of"):  # of the picture
            self._place(AREAS[direction.split()[0]])

    def _preposition(self, token: Token) -> None:
        """ "On" a thing is above it; "in" a thing cannot be drawn."""
        noun = self._next_noun()
        has_thing = self._clause is not None and self._clause.things
        if noun and noun.sort in ("thing", "it") and has_thing:
            if token.sort == "in":
                self._inexpressible = token
            else:
                self._direction = "above" if token.name == "on" else "next to"

    def _next_noun(self) -> Token | None:
        """The noun of the phrase that begins here."""
        tokens = self._tokens[self._next : self._next + 6]
        following = (token for token in tokens if token.sort not in _BEFORE_NOUN)
        noun = next(following, None)
        return noun if noun and noun.sort in _NOUNS else None

    def _place(self, area: Area) -> None:
        clause = self._clause
        if clause is None or not clause.things or (self._joined and self._role == "thing"):
            self._area = area
        elif self._role == "thing" and clause.things[-1].area is None:
            clause.things[-1] = replace(clause.things[-1], area=area)
        else:
            clause.area = area

    def _read_noun(self) -> None:
        """Read a noun phrase, or what is left of one: a colour after its thing, a number."""
        begin = self._next
        while self._tokens[self._next].sort in _BEFORE_NOUN:
            self._next += 1
        noun = self._tokens[self._next]
        # Of "the seasons of a tree", whose first noun means nothing here, only the second counts.
        determiners = [n for n in range(begin, self._next) if self._tokens[n].sort in _DETERMINERS]
        before = self._tokens[(determiners or [begin])[-1] : self._next]
        if noun.sort == "word" and before and not is_undrawn(noun.name):
            first = next((t for t in before if t.sort not in _DETERMINERS), noun)
            self._next += 1
            self._add_unknown(replace(noun, start=first.start))
        elif noun.sort in _NOUNS:
            self._next += 1
            self._take_noun(before, noun)
        else:
            self._take_rest(before)

    def _take_rest(self, before: list[Token]) -> None:
        """Words before a noun, without the noun."""
        for token in before:
            if token.sort == "colour":
                self._take_colour(token)
            elif token.name == "1" and self._text[token.start : token.end] == "one":
                self._take_noun(before[: before.index(token)], replace(token, sort="it"))
                return
            elif token.sort == "number":
                self._add_unknown(token)

    def _take_colour(self, token: Token) -> None:
        clause = self._clause
        if clause is None or not clause.things or self._negated:
            self._add_unknown(token)
        elif self._role == "exception":
            clause.exceptions.append(NounPhrase(None, token.name))
        elif clause.verb in ("paint", "turn") and clause.colour is None:
            clause.colour = token.name
        elif clause.verb in ("draw", "add", "put") and clause.things[-1].colour is None:
            clause.things[-1] = replace(clause.things[-1], colour=token.name)
        else:
            self._add_unknown(token)

    def _take_noun(self, before: list[Token], noun: Token) -> None:
        after = self._tokens[self._next]
        if after.start == noun.end + 1 and self._is_compound(before, noun, after):
            self._next += 1
            first = next((t for t in before if t.sort == "colour"), noun)
            self._add_unknown(replace(after, start=first.start))  # "paper plane"
        elif noun.sort == "background":
            self._take_background(before, noun)
        elif noun.sort != "it" or before or self._clause or self._last:
            self._use(self._noun_phrase(before, noun))  # else "it" is the picture

    def _is_compound(self, before: list[Token], noun: Token, after: Token) -> bool:
        """Whether two nouns name one thing, as in "paper plane"."""
        changes = self._clause is not None and self._clause.verb in ("paint", "turn")
        says_how = changes and any(token.sort == "definite" for token in before)
        is_name = noun.sort in ("thing", "background") and after.sort == "word"
        return is_name and not says_how and not is_undrawn(after.name)

    def _take_background(self, before: list[Token], noun: Token) -> None:
        clause = self._clause or self._begin_clause("draw")
        self._is_open = self._is_open or not clause.things
        modifiers = [token for token in before if token.sort in ("colour", "number", "several")]
        is_negated = self._negated and not self._joined
        if clause.background or is_negated or modifiers:
            self._add_unknown(replace(noun, start=(modifiers or [noun])[0].start))
        else:
            clause.background = noun.name
        self._end_phrase()

    def _noun_phrase(self, before: list[Token], noun: Token) -> NounPhrase:
        by_sort = {token.sort: token for token in before}
        written = self._text[noun.start : noun.end]
        is_plural = written in plurals() or written in ("them", "ones", "things", "objects")
        definite = "definite" in by_sort or (noun.sort == "it" and not before)
        number = by_sort.get("number")
        if "several" in by_sort or (is_plural and not number and not definite):
            count = None
        else:
            count = min(int(number.name), _MAX_COUNT) if number else 1
        start = (before or [noun])[0].start
        if self._negated and self._joined not in ("", "or", "nor") and before:
            self._negated = False
        colours = [token for token in before if token.sort == "colour"]
        for surplus in colours[:-1]:
            self._add_unknown(surplus)
        phrase = NounPhrase(
            noun.name if noun.sort == "thing" else None,
            colours[-1].name if colours else None,
            count,
            every="every" in by_sort or noun.sort == "everything" or (is_plural and not number),
            definite=definite,
            negated=self._negated,
            area=self._area,
            words=self._text[start : noun.end],
        )
        self._area = None
        if noun.sort == "it" and self._last:
            last = self._last
            colour = phrase.colour if before else last.colour
            phrase = replace(phrase, kind=last.kind, colour=colour)
        return phrase

    def _use(self, phrase: NounPhrase) -> None:
        """Give a noun phrase its role in the clause."""
        clause = self._clause
        if clause is None:
            clause, self._is_open = self._begin_clause("draw"), True
        if self._inexpressible:
            start = self._inexpressible.start
            self._unknown.append(self._text[start : self._tokens[self._next - 1].end])
            clause.things.append(phrase)
        elif self._direction and clause.things:
            relation = (self._direction, phrase)
            if clause.things[-1].relation is None and self._role == "thing":
                clause.things[-1] = replace(clause.things[-1], relation=relation)
            else:
                clause.relation = relation
        else:
            self._use_as(self._role, phrase, clause)
        if self._role in ("colour", "instead") or self._direction or self._inexpressible:
            self._end_phrase()
        self._last = phrase if self._last is None or not self._direction else self._last
        self._joined = ""

    def _use_as(self, role: str, phrase: NounPhrase, clause: Clause) -> None:
        match role:
            case "result":
                clause.results.append(phrase)
            case "colour":
                clause.colour_of = phrase
            case "exception" if not phrase.negated:
                clause.exceptions.append(phrase)
            case "instead" if clause.things:
                clause.verb, clause.results, clause.things = "replace", clause.things, [phrase]
            case _:
                clause.things.append(phrase)

    def _add_unknown(self, token: Token) -> None:
        """Note a word that nothing is known of; with the words right before it, it is one name."""
        words = self._text[token.start : token.end]
        if is_undrawn(words) or token.sort in _LATE_VERBS:
            self._undrawn.append(words)
        elif 0 <= self._unknown_end == token.start - 1 and self._unknown:
            self._unknown[-1] += f" {words}"
            self._unknown_end = token.end
        else:
            self._unknown.append(words)
            self._unknown_end = token.end
