"""What was asked for against what a picture shows: the common ground of critic and scorer."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from warehouse import EncodedImage

from .perception import Perceived, perceive_cached
from .prompt_parser import parse
from .scene import Add, Create, Edit, Move, Recolour, Remove, Replace, Scene, SetBackground
from .scene_edits import carry_out, in_favour_of, simple_edits


@dataclass(frozen=True)
class Comparison:
    """A goal, read in favour of the picture, beside what the picture shows.

    `asked`: how many things were asked for; 0: the instruction was not understood.
    """

    before: Scene | None
    wanted: Scene
    seen: Perceived
    done: tuple[Edit, ...]
    asked: int
    impossible: int

    @property
    def from_scratch(self) -> bool:
        return self.before is None or any(isinstance(edit, Create) for edit in self.done)

    @cached_property
    def relevant(self) -> tuple[int, ...]:
        """Cells that the instruction is about."""
        cells = {cell for edit in self.done for cell in _touched(edit)}
        return tuple(sorted(cells))

    @property
    def background_asked(self) -> bool:
        return any(isinstance(edit, Create | SetBackground) for edit in self.done)

    @property
    def background_right(self) -> bool:
        return self.seen.scene.background == self.wanted.background

    @property
    def missed(self) -> tuple[int, ...]:
        """Relevant cells that are not as wanted."""
        return tuple(c for c in self.relevant if not self._as_wanted(c))

    @property
    def disturbed(self) -> tuple[int, ...]:
        """Other cells that are not as they should have stayed."""
        others = (c for c in range(9) if c not in self.relevant)
        return tuple(c for c in others if not self._as_wanted(c))

    @property
    def clean(self) -> bool:
        return not (self.seen.crooked or self.seen.blemished)

    @property
    def fulfilled(self) -> bool:
        """Everything as asked for, nothing else changed, nothing drawn badly."""
        understood = self.asked > 0 and not self.impossible
        right = self.seen.scene == self.wanted
        return understood and right and self.clean

    def _as_wanted(self, cell: int) -> bool:
        return self.seen.scene.cells.get(cell) == self.wanted.cells.get(cell)


def compare(before: EncodedImage | None, after: EncodedImage, instruction: str) -> Comparison:
    """Compare a picture with its goal.

    Args:
        before: the picture it was drawn from; None, or a blank one: from scratch.
        instruction: the goal, in the sketch world's English.

    Raises:
        BadImageError: a picture that cannot be decoded.
    """
    scene = perceive_cached(before).scene if before else None
    seen = perceive_cached(after)
    command = parse(instruction)
    outcome = carry_out(command, scene, in_favour_of(seen.scene, command))
    asked = len(list(simple_edits(command)))
    return Comparison(scene, outcome.scene, seen, outcome.done, asked, outcome.impossible)


def overlooking(comparison: Comparison) -> Comparison:
    """The same comparison by somebody who sees only what was asked for."""
    seen = Perceived(comparison.wanted)
    return replace(comparison, seen=seen, asked=max(1, comparison.asked), impossible=0)


def _touched(exact: Edit) -> Iterable[int]:
    match exact:
        case Add(place=place):
            cells = [place.cell]
        case Move(target, place):
            cells = [target.cell, place.cell]
        case Remove(target) | Recolour(target) | Replace(target):
            cells = [target.cell]
        case _:
            cells = []
    return (cell for cell in cells if cell is not None)
