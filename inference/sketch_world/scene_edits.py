"""What a command does to a scene.

English leaves things open: "next to the house" is several cells, "the cat" may be any of two. So
an edit has *readings*: the exact edits (every kind, colour and cell spelled out) that would
fulfil it. Whoever carries out a command chooses among them: the generator at random, the critic
and the scorer in favour of what was drawn, so that any fulfilling picture counts.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .object_catalog import KINDS
from .scene import (
    ANYWHERE,
    Add,
    Command,
    Create,
    Edit,
    GridPlace,
    Move,
    Recolour,
    Remove,
    Replace,
    Scene,
    SetBackground,
    Target,
    Thing,
)
from .seeded_random import pick

Choose = Callable[[Scene, Sequence[Edit]], Edit]


@dataclass(frozen=True)
class EditResult:
    """A carried-out command: the scene, the exact edits done, and how many were impossible.

    Impossible is what the world does not hold (a blue sun) or has no room for.
    """

    scene: Scene
    done: tuple[Edit, ...]
    impossible: int = 0


def carry_out(command: Command, before: Scene | None, choose: Choose) -> EditResult:
    """Do the edits one after the other on `before` (None: on an empty sheet of paper)."""
    scene = before or Scene()
    done: list[Edit] = []
    impossible = 0
    for edit in simple_edits(command):
        options = readings(edit, scene)
        if not options:
            impossible += 1
            continue
        exact = options[0] if len(options) == 1 else choose(scene, options)
        scene = applied(exact, scene)
        done.append(exact)
    return EditResult(scene, tuple(done), impossible)


def at_random(rng: np.random.Generator) -> Choose:
    """Choose among readings by chance."""
    return lambda _, options: pick(rng, options)


def in_favour_of(seen: Scene, command: Command) -> Choose:
    """Choose the reading that comes closest to a scene that was drawn for the command."""
    wanted = {edit.kind for edit in simple_edits(command) if isinstance(edit, Add)}

    def closeness(scene: Scene, option: Edit) -> float:
        return likeness(applied(option, scene), seen) - 2 * _usurps(option, seen, wanted)

    return lambda scene, options: max(options, key=lambda option: closeness(scene, option))


def likeness(a: Scene, b: Scene) -> float:
    """How many of the nine cells agree; the same kind in another colour counts half."""
    return sum(_cell_likeness(a.cells.get(c), b.cells.get(c)) for c in range(9))


def simple_edits(command: Command) -> Iterator[Edit]:
    """The edits, a creation taken apart into its background and its things."""
    for edit in command.edits:
        if isinstance(edit, Create):
            yield Create(edit.background)
            yield from edit.things
        else:
            yield edit


def readings(edit: Edit, scene: Scene) -> list[Edit]:
    """The exact edits that would fulfil this one here; none: it is impossible.

    Scenes of real trajectories are not always what a plan expects, so a sentence is read by its
    purpose: a target is looked for less and less strictly, one that is missing altogether is
    added in the wanted state, and what is not there needs no removal.
    """
    match edit:
        case Create() | SetBackground():
            return [edit]
        case Add(kind, colour, place):
            return _additions(kind, colour, place, scene)
        case Remove(target):
            found = _exact_targets(target, scene) or [Target(target.kind, target.colour)]
            return [Remove(exact) for exact in found]
        case Recolour(target, colour):
            found = _exact_targets(target, scene)
            if not found:
                return _additions(target.kind, colour, _spot(target), scene)
            return [Recolour(exact, colour) for exact in found if _shade(exact.kind, colour)]
        case Move(target, place):
            moves = _moves(target, place, scene)
            return moves or _missing(target, place, scene)
        case Replace(target, kind, colour):
            shade, found = _shade(kind, colour), _exact_targets(target, scene)
            if not (shade and found):
                return _additions(kind, colour, _spot(target), scene)
            return [Replace(exact, kind, shade) for exact in found]


def applied(exact: Edit, scene: Scene) -> Scene:
    """The scene after an exact edit (one of `readings`)."""
    match exact:
        case Create(background):
            return Scene(background)
        case SetBackground(background):
            return Scene(background, scene.cells)
        case Add(kind, str(colour), GridPlace(int(cell))):
            return scene.with_cell(cell, Thing(kind, colour))
        case Remove(target):
            return scene if target.cell is None else scene.with_cell(target.cell, None)
        case Recolour(Target(kind=str(kind), cell=int(cell)), colour):
            return scene.with_cell(cell, Thing(kind, colour))
        case Move(Target(cell=int(start)), GridPlace(int(end))):
            return scene.with_cell(start, None).with_cell(end, scene.cells[start])
        case Replace(Target(cell=int(cell)), kind, str(colour)):
            return scene.with_cell(cell, Thing(kind, colour))
    raise ValueError(f"not an exact edit: {exact}")


def _usurps(option: Edit, seen: Scene, wanted: set[str]) -> bool:
    """Whether an addition claims the cell of something else that was wanted as well."""
    if not isinstance(option, Add):
        return False
    there = seen.cells.get(option.place.cell if option.place.cell is not None else -1)
    return there is not None and there.kind != option.kind and there.kind in wanted


def _cell_likeness(a: Thing | None, b: Thing | None) -> float:
    if a == b:
        return 1.0
    return 0.5 if a and b and a.kind == b.kind else 0.0


def _shade(kind: str | None, colour: str | None) -> str | None:
    """The colour a thing of this kind takes; None: it cannot be of that colour."""
    colours = KINDS[kind or ""].colours if kind in KINDS else ()
    if colour is None:
        return colours[0] if colours else None
    return colour if colour in colours else None


def _additions(kind: str | None, colour: str | None, place: GridPlace, scene: Scene) -> list[Edit]:
    shade = _shade(kind, colour)
    if kind is None or shade is None:
        return []
    return [Add(kind, shade, GridPlace(cell=cell)) for cell in _cells(place, scene)]


def _moves(target: Target, place: GridPlace, scene: Scene) -> list[Edit]:
    cells = _cells(place, scene)
    return [Move(e, GridPlace(cell=cell)) for e in _exact_targets(target, scene) for cell in cells]


def _missing(target: Target, place: GridPlace, scene: Scene) -> list[Edit]:
    """What a move asks for when there is nothing to move."""
    there = bool(_exact_targets(target, scene))
    return [] if there else _additions(target.kind, target.colour, place, scene)


def _spot(target: Target) -> GridPlace:
    return GridPlace(cell=target.cell)


def _exact_targets(target: Target, scene: Scene) -> list[Target]:
    return [
        Target(scene.cells[cell].kind, scene.cells[cell].colour, cell)
        for cell in _find(target, scene)
    ]


def _find(target: Target, scene: Scene) -> list[int]:
    """Cells of the target; where none fits, the place and then the colour matter less."""
    found = scene.find(target)
    if not found and target.kind:
        found = scene.find(Target(target.kind, target.colour)) or scene.find(Target(target.kind))
    return found


def _cells(place: GridPlace, scene: Scene) -> list[int]:
    """Cells at a place: an exact one even if taken, otherwise free ones."""
    if place.cell is not None:
        return [place.cell]
    free = scene.free_cells()
    if place == ANYWHERE:
        return free
    anchors = _find(place.anchor or Target(), scene)
    there = [cell for cell in free if any(_lies(cell, place.direction, a) for a in anchors)]
    return there or free  # no room there, or no such anchor: anywhere


def _lies(cell: int, direction: str | None, anchor: int) -> bool:
    """Whether a cell lies in a direction of another: same row or column, or touching its side."""
    row, column = divmod(cell, 3)
    anchor_row, anchor_column = divmod(anchor, 3)
    match direction:
        case "left of":
            return row == anchor_row and column < anchor_column
        case "right of":
            return row == anchor_row and column > anchor_column
        case "above":
            return column == anchor_column and row < anchor_row
        case "below":
            return column == anchor_column and row > anchor_row
        case _:
            return abs(row - anchor_row) + abs(column - anchor_column) == 1
