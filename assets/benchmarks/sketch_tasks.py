"""Tasks of the sketch world, written from random numbers: the request, its pictures, its truth.

Of each shape: how requests are worded, and what a right answer shows. A task is about one skill.
What it requires are scenes and counts of things in them, never words of its request. Colours are
required only where the skill or the given pictures are about them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from inference.sketch_world.object_catalog import KINDS, PLACES
from inference.sketch_world.prompt_writer import join_with_and, phrase_noun, with_article
from inference.sketch_world.scene import Scene, Thing

SHAPES = ("interleaved", "continuation", "inferred", "edits")
SKILLS = ("position", "colour", "count", "memory", "negation")
MAX_DIFFICULTY = 4  # with more, the things do not fit into nine cells

# Of many colours; no two of them are the words of a story that the sketch planner knows.
_KINDS = (
    *("circle", "square", "star", "heart", "diamond", "house", "mushroom", "flower", "cat", "dog"),
    *("fish", "bird", "rabbit", "frog", "car", "plate", "ball", "boat", "book", "cup"),
)
_BACKGROUNDS = ("meadow", "beach", "room", "sea")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

_SIDES = {
    "at the top": (0, 1, 2),
    "at the bottom": (6, 7, 8),
    "on the left side": (0, 3, 6),
    "on the right side": (2, 5, 8),
}
_CORNERS = (0, 2, 6, 8)
_MIXTURES = {
    "orange": ("red", "yellow"),
    "green": ("blue", "yellow"),
    "purple": ("red", "blue"),
    "pink": ("red", "white"),
    "gray": ("black", "white"),
}
_GIVEN = 2  # pictures that a continuation begins with


@dataclass(frozen=True)
class Requirement:
    """Exactly `count` things of a kind and colour (None: any) in some cells of a picture.

    Args:
        picture: from the last one, -1, backwards, so that answers may begin with more pictures.
    """

    kind: str | None
    colour: str | None = None
    count: int = 1
    cells: tuple[int, ...] = tuple(range(9))
    picture: int = -1

    @property
    def question(self) -> str:
        places = "" if len(self.cells) == 9 else f" at {'/'.join(PLACES[c] for c in self.cells)}"
        return f"picture {self.picture}: {self.count} {phrase_noun(self.kind, self.colour)}{places}"

    def is_met(self, scenes: Sequence[Scene]) -> bool:
        """Whether the pictures show it; False: there is no such picture."""
        if len(scenes) < -self.picture:
            return False
        things = [scenes[self.picture].cells.get(cell) for cell in self.cells]
        return sum(self._is_meant(thing) for thing in things if thing) == self.count

    def _is_meant(self, thing: Thing) -> bool:
        return self.kind in (None, thing.kind) and self.colour in (None, thing.colour)


@dataclass(frozen=True)
class Task:
    """A request and what answers it.

    Args:
        given: scenes of the pictures given with it.
        expected: scenes of one right answer, as many as it has pictures; others may be right.
    """

    skill: str
    text: str
    given: tuple[Scene, ...]
    expected: tuple[Scene, ...]
    requirements: tuple[Requirement, ...]


class Draft:
    """Random things, cells and a background of one task."""

    def __init__(self, skill: str, difficulty: int, rng: Random) -> None:
        self.skill, self.difficulty, self.rng = skill, difficulty, rng
        self.background = rng.choice(_BACKGROUNDS)
        self.kinds = rng.sample(_KINDS, len(_KINDS))
        self.cells = rng.sample(range(9), 9)

    def thing(self, coloured: bool = False) -> Thing:
        """Of a kind that no other has, in the kind's own colour or a random one."""
        kind = KINDS[self.kinds.pop()]
        return Thing(kind.name, self.rng.choice(kind.colours) if coloured else kind.default_colour)

    def things(self, count: int, coloured: bool = False) -> list[Thing]:
        return [self.thing(coloured) for _ in range(count)]

    def scenes(self, things: Sequence[Thing]) -> list[Scene]:
        """One after each thing, with the earlier ones."""
        cells = list(zip(self.cells, things, strict=False))
        return [Scene(self.background, dict(cells[:end])) for end in range(1, len(cells) + 1)]

    def scene(self, things: Sequence[Thing]) -> Scene:
        return self.scenes(things)[-1]

    def task(
        self,
        text: str,
        expected: Sequence[Scene],
        requirements: Iterable[Requirement],
        given: Sequence[Scene] = (),
    ) -> Task:
        return Task(self.skill, text, tuple(given), tuple(expected), tuple(requirements))


def noun_of(thing: Thing, coloured: bool = False) -> str:
    return with_article(phrase_noun(thing.kind, thing.colour if coloured else None))


def counted(thing: Thing, count: int, more: str = "") -> str:
    return f"{NUMBERS[count]} {more}{thing.kind if count == 1 else KINDS[thing.kind].plural}"


def write_task(shape: str, skill: str, difficulty: int, rng: Random) -> Task:
    draft = Draft(skill, difficulty, rng)
    if shape in ("interleaved", "continuation"):
        return _growing(draft, given=_GIVEN if shape == "continuation" else 0)
    return (_INFERRED if shape == "inferred" else _EDITS)[skill](draft)


def _growing(draft: Draft, given: int) -> Task:
    """Pictures with one more thing each, from text or after given ones."""
    skill, rng, named = draft.skill, draft.rng, draft.skill == "colour"
    things = draft.things(3 if skill == "count" else 2 + draft.difficulty, coloured=named)
    copies = rng.randint(2, draft.difficulty + 1) if skill == "count" else 1
    new = [things[0]] * copies + things[1 : 2 if given and skill == "count" else None]
    old = draft.things(given)
    scenes = draft.scenes([*old, *new])
    final = scenes[-1]
    placed = dict(zip(draft.cells[given:], new, strict=False))
    words: dict[Thing, str] = {thing: noun_of(thing, named) for thing in things}
    words[things[0]] = counted(things[0], copies) if copies > 1 else words[things[0]]
    required = [Requirement(t.kind, t.colour if named else None, new.count(t)) for t in set(new)]
    required = sorted(required, key=lambda requirement: str(requirement.kind))
    tail = ""
    if skill == "position":
        required, places = _placed(draft, placed)
        words |= {thing: f"{words[thing]} {place}" for thing, place in places.items()}
    elif skill == "memory":
        required = _remembered(scenes[given:])
        tail = ". Keep everything that is there already"
    elif skill == "negation" and rng.random() < 0.5:
        unwanted = draft.thing()
        required.append(Requirement(unwanted.kind, count=0))
        tail = f", but no {unwanted.kind}"
    elif skill == "negation":
        required.append(Requirement(None, count=len(final.cells)))
        tail = ", and nothing else"
    contents = join_with_and([words[thing] for thing in dict.fromkeys(new)])
    if given:
        opening = f"{'<image> ' * given}Continue these pictures, thing by thing: add "
    else:
        surface, pictures = with_article(draft.background), NUMBERS[len(new)]
        opening = f"Draw {surface} in {pictures} pictures, thing by thing: "
    return draft.task(f"{opening}{contents}{tail}.", scenes[given:], required, scenes[:given])


def _placed(draft: Draft, placed: dict[int, Thing]) -> tuple[list[Requirement], dict[Thing, str]]:
    """Requirements on the places of some things, and their words: sides, then exact cells."""
    required, words = [], {}
    for cell, thing in list(placed.items())[: draft.difficulty]:
        sides = [side for side, cells in _SIDES.items() if cell in cells]
        if draft.difficulty == 1 and sides:
            words[thing] = draft.rng.choice(sides)
            cells: tuple[int, ...] = _SIDES[words[thing]]
        else:
            words[thing] = f"{'in' if PLACES[cell] == 'center' else 'at'} the {PLACES[cell]}"
            cells = (cell,)
        required.append(Requirement(thing.kind, cells=cells))
    return required, words


def _remembered(scenes: Sequence[Scene]) -> list[Requirement]:
    """Every picture has all the things of its scene."""
    return [
        Requirement(thing.kind, picture=number - len(scenes))
        for number, scene in enumerate(scenes)
        for thing in scene.cells.values()
    ]


def _opposite_corner(draft: Draft) -> Task:
    things = draft.things(2 + draft.difficulty)
    corners = draft.rng.sample(_CORNERS, draft.difficulty)
    draft.cells = [*corners, *(cell for cell in draft.cells if cell not in corners)]
    nouns = [noun_of(thing) for thing in things]
    for number, corner in enumerate(corners):
        nouns[number] += f" in the corner farthest from the {PLACES[8 - corner]}"
    required = [
        Requirement(thing.kind, cells=(corner,))
        for thing, corner in zip(things, corners, strict=False)
    ]
    text = f"Draw {with_article(draft.background)} with {join_with_and(nouns)}."
    return draft.task(text, [draft.scene(things)], required)


def _mixed_colour(draft: Draft) -> Task:
    colours = draft.rng.sample(sorted(_MIXTURES), draft.difficulty)
    mixed = [Thing(draft.thing().kind, colour) for colour in colours]
    others = draft.things(2)
    nouns = [noun_of(thing) for thing in others]
    for thing in mixed:
        parts = join_with_and(_MIXTURES[thing.colour])
        nouns.append(f"{noun_of(thing)} in the colour that {parts} give together")
    required = [Requirement(thing.kind, thing.colour) for thing in mixed]
    text = f"Draw {with_article(draft.background)} with {join_with_and(nouns)}."
    return draft.task(text, [draft.scene([*others, *mixed])], required)


def _sum(draft: Draft) -> Task:
    thing, *others = draft.things(3)
    first, second = (draft.rng.randint(1, 1 + draft.difficulty // 2) for _ in range(2))
    leaves = draft.difficulty > 1 or draft.rng.random() < 0.5
    parts = [counted(thing, first), *map(noun_of, others)]
    text = f"A picture of {with_article(draft.background)} shows {join_with_and(parts)}. "
    text += f"{counted(thing, second, 'more ').capitalize()} {'joins' if second == 1 else 'join'}. "
    text += f"One {thing.kind} goes. " if leaves else ""
    total = first + second - leaves
    required = [Requirement(thing.kind, count=total), *(Requirement(o.kind) for o in others)]
    scene = draft.scene([*[thing] * total, *others])
    return draft.task(f"{text}Draw the picture now.", [scene], required)


def _remember_events(draft: Draft) -> Task:
    things = draft.things(2 + draft.difficulty)
    leaves = draft.difficulty > 1 or draft.rng.random() < 0.5
    gone = things[: int(leaves)]
    events = [f"{noun_of(thing).capitalize()} comes." for thing in things]
    events += [f"The {thing.kind} goes." for thing in gone]
    required = [Requirement(thing.kind, count=int(thing not in gone)) for thing in things]
    text = f"There is an empty {draft.background}. {' '.join(events)} Draw the picture now."
    return draft.task(text, [draft.scene(things[len(gone) :])], required)


def _all_but(draft: Draft) -> Task:
    things = draft.things(3 + draft.difficulty)
    left_out, *kept = things
    nouns = join_with_and([noun_of(thing) for thing in sorted(things, key=lambda t: t.kind)])
    surface = with_article(draft.background)
    text = f"Think of {nouns}. Draw {surface} with all of them but the {left_out.kind}."
    required = [*(Requirement(t.kind) for t in kept), Requirement(left_out.kind, count=0)]
    return draft.task(text, [draft.scene(kept)], required)


def _edit(
    draft: Draft, text: str, given: Sequence[Scene], after: Scene, free: str | None = None
) -> Task:
    """An edit of the last given picture; everything is where `after` has it, but kind `free`."""
    required = [
        Requirement(thing.kind, thing.colour, cells=(cell,))
        for cell, thing in sorted(after.cells.items())
        if thing.kind != free
    ]
    if free:
        count = sum(thing.kind == free for thing in after.cells.values())
        required.append(Requirement(free, count=count))
    required.append(Requirement(None, count=len(after.cells)))
    return draft.task(f"{'<image> ' * len(given)}{text}", [after], required, given)


def _swap(draft: Draft) -> Task:
    first, second, *others = draft.things(2 + draft.difficulty, coloured=True)
    before, after = draft.scene([first, second, *others]), draft.scene([second, first, *others])
    text = f"Let the {first.kind} and the {second.kind} change places."
    return _edit(draft, text, [before], after)


def _same_colour(draft: Draft) -> Task:
    model, *others = draft.things(1 + draft.difficulty, coloured=True)
    colours = [colour for colour in KINDS["ball"].colours if colour != model.colour]
    painted = Thing(draft.thing().kind, draft.rng.choice(colours))
    before = draft.scene([painted, model, *others])
    after = draft.scene([Thing(painted.kind, model.colour), model, *others])
    text = f"Paint the {painted.kind} in the colour of the {model.kind}."
    return _edit(draft, text, [before], after)


def _double(draft: Draft) -> Task:
    thing, *others = draft.things(2)
    count = draft.rng.randint(1, 1 + draft.difficulty // 2)
    before = [*others, *[thing] * count]
    after = draft.scene([*before, *[thing] * count])
    text = f"Draw twice as many {KINDS[thing.kind].plural}."
    return _edit(draft, text, [draft.scene(before)], after, free=thing.kind)


def _put_back(draft: Draft) -> Task:
    things = draft.things(2 + draft.difficulty, coloured=True)
    first = draft.scene(things)
    lost = Scene(first.background, dict(list(first.cells.items())[(draft.difficulty + 1) // 2 :]))
    text = "Draw the second picture again with everything that the first has and it has lost."
    return _edit(draft, text, [first, lost], first)


def _keep_only(draft: Draft) -> Task:
    things = draft.things(2 + draft.difficulty, coloured=True)
    text = f"Remove everything that is not a {things[0].kind}."
    return _edit(draft, text, [draft.scene(things)], draft.scene(things[:1]))


_INFERRED: dict[str, Callable[[Draft], Task]] = {
    "position": _opposite_corner,
    "colour": _mixed_colour,
    "count": _sum,
    "memory": _remember_events,
    "negation": _all_but,
}
_EDITS: dict[str, Callable[[Draft], Task]] = {
    "position": _swap,
    "colour": _same_colour,
    "count": _double,
    "memory": _put_back,
    "negation": _keep_only,
}
