"""What an instruction asks for against what an image shows; shared by critic and scorer."""

from dataclasses import dataclass
from functools import cached_property

from warehouse import EncodedImage

from .perception import Perception, perceive_cached
from .prompt_parser import parse
from .scene import Create, Edit, Move, Scene, SetBackground, edited_cell
from .scene_edits import carry_out, closest_to, simple_edits


@dataclass(frozen=True)
class Comparison:
    """An instruction, interpreted in favour of an image, and what the image shows."""

    before: Scene | None  # the scene that was edited; None: from scratch
    expected: Scene  # the scene that fulfils the instruction and is closest to the image
    perception: Perception  # what the image shows
    exact_edits: tuple[Edit, ...]  # they lead from `before` to `expected`
    edit_count: int  # edits the instruction asks for; 0: it was not understood
    impossible: int  # how many of them are impossible

    @property
    def actual(self) -> Scene:
        return self.perception.scene

    @property
    def is_from_scratch(self) -> bool:
        return self.before is None or any(isinstance(edit, Create) for edit in self.exact_edits)

    @cached_property
    def relevant_cells(self) -> tuple[int, ...]:
        """Cells that the instruction is about."""
        cells = {edited_cell(edit) for edit in self.exact_edits}
        cells |= {edit.target.cell for edit in self.exact_edits if isinstance(edit, Move)}
        return tuple(sorted(cell for cell in cells if cell is not None))

    @property
    def sets_background(self) -> bool:
        return any(isinstance(edit, Create | SetBackground) for edit in self.exact_edits)

    @property
    def background_matches(self) -> bool:
        return self.actual.background == self.expected.background

    @cached_property
    def wrong_cells(self) -> tuple[int, ...]:
        expected, actual = self.expected.cells, self.actual.cells
        return tuple(cell for cell in range(9) if expected.get(cell) != actual.get(cell))

    @property
    def side_effects(self) -> tuple[int, ...]:
        """Other cells that are not as expected: they should not have changed."""
        return tuple(cell for cell in self.wrong_cells if cell not in self.relevant_cells)

    @property
    def is_fulfilled(self) -> bool:
        """Everything as requested, nothing else changed, nothing drawn badly."""
        is_possible = self.edit_count > 0 and not self.impossible
        has_flaws = self.perception.crooked or self.perception.blemished
        return is_possible and self.actual == self.expected and not has_flaws


def compare(before: EncodedImage | None, after: EncodedImage, instruction: str) -> Comparison:
    """Compare an image with its instruction; raises BadImageError. `before` None: from scratch."""
    scene = perceive_cached(before).scene if before else None
    perception = perceive_cached(after)
    command = parse(instruction)
    result = carry_out(command, scene, closest_to(perception.scene, command))
    edit_count = len(list(simple_edits(command)))
    return Comparison(
        scene, result.scene, perception, result.exact_edits, edit_count, result.impossible
    )
