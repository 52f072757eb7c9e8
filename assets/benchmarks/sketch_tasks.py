"""Tasks of the sketch world, written from random numbers: the request, its pictures, its truth.

A task is about one skill. What it requires are scenes and counts of things in them, never words of
its request. Colours are required only where the skill or the given pictures are about them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from inference.sketch_world.object_catalog import KINDS, PLACES
from inference.sketch_world.prompt_writer import phrase_noun, with_article
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
