"""What a command does to a scene.

English is ambiguous: "next to the house" is several cells, "the cat" may be any of two. So an edit
has interpretations: the exact edits (with every kind, colour and cell) that would fulfil it. The
generator chooses among them at random, the critic and the scorer in favour of what was drawn, so
that any fulfilling image counts.
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
    """The scene after a command, the exact edits that led there, and how many were impossible.

    Impossible: a colour that the kind cannot have (a blue sun), or no free cell.
    """

    scene: Scene
    exact_edits: tuple[Edit, ...]
    impossible: int = 0


def carry_out(command: Command, before: Scene | None, choose: Choose) -> EditResult:
    """Apply the edits one after the other to `before` (None: on an empty sheet of paper)."""
    scene = before or Scene()
    exact_edits: list[Edit] = []
    impossible = 0
    for edit in simple_edits(command):
        options = interpretations(edit, scene)
        if not options:
            impossible += 1
            continue
        exact = options[0] if len(options) == 1 else choose(scene, options)
        scene = apply_edit(exact, scene)
        exact_edits.append(exact)
    return EditResult(scene, tuple(exact_edits), impossible)


def at_random(rng: np.random.Generator) -> Choose:
    """Choose among interpretations at random."""
    return lambda _, options: pick(rng, options)


def closest_to(actual: Scene, command: Command) -> Choose:
    """Choose the interpretation that comes closest to a scene that was drawn for the command."""
    requested_kinds = {edit.kind for edit in simple_edits(command) if isinstance(edit, Add)}

    def score(scene: Scene, option: Edit) -> float:
        similarity = scene_similarity(apply_edit(option, scene), actual)
        return similarity - 2 * _takes_other_cell(option, actual, requested_kinds)

    return lambda scene, options: max(options, key=lambda option: score(scene, option))


def scene_similarity(a: Scene, b: Scene) -> float:
    """How many of the nine cells agree; the same kind in another colour counts half."""
    return sum(_cell_similarity(a.cells.get(c), b.cells.get(c)) for c in range(9))


def simple_edits(command: Command) -> Iterator[Edit]:
    """The edits, with a creation split into its background and its things."""
    for edit in command.edits:
        if isinstance(edit, Create):
            yield Create(edit.background)
            yield from edit.things
        else:
            yield edit


def interpretations(edit: Edit, scene: Scene) -> list[Edit]:
    """The exact edits that would fulfil this one in the scene; empty: it is impossible.

    Scenes are not always what a plan expects, so that an edit is interpreted by its purpose: a
    target is matched less and less strictly, a missing one is added in its requested state, and
    nothing needs to be done to remove a missing one.
    """
    match edit:
        case Create() | SetBackground():
            return [edit]
        case Add(kind, colour, place):
            return _additions(kind, colour, place, scene)
        case Remove(target):
            targets = _exact_targets(target, scene) or [Target(target.kind, target.colour)]
            return [Remove(exact) for exact in targets]
        case Recolour(target, colour):
            targets = _exact_targets(target, scene)
            if not targets:
                return _additions(target.kind, colour, GridPlace(target.cell), scene)
            return [Recolour(t, colour) for t in targets if _legal_colour(t.kind, colour)]
        case Move(target, place):
            moves = _moves(target, place, scene)
            return moves or _add_if_missing(target, place, scene)
        case Replace(target, kind, colour):
            legal, targets = _legal_colour(kind, colour), _exact_targets(target, scene)
            if not (legal and targets):
                return _additions(kind, colour, GridPlace(target.cell), scene)
            return [Replace(exact, kind, legal) for exact in targets]


def apply_edit(exact: Edit, scene: Scene) -> Scene:
    """The scene after an exact edit (one of `interpretations`)."""
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


def _takes_other_cell(option: Edit, actual: Scene, requested_kinds: set[str]) -> bool:
    """Whether an addition is in the cell of another kind that was requested as well."""
    if not isinstance(option, Add):
        return False
    occupant = actual.cells.get(option.place.cell if option.place.cell is not None else -1)
    return occupant is not None and occupant.kind in requested_kinds - {option.kind}


def _cell_similarity(a: Thing | None, b: Thing | None) -> float:
    if a == b:
        return 1.0
    return 0.5 if a and b and a.kind == b.kind else 0.0


def _legal_colour(kind: str | None, colour: str | None) -> str | None:
    """The colour, or the kind's default; None: the kind cannot have that colour."""
    if kind not in KINDS:
        return None
    if colour is None:
        return KINDS[kind].default_colour
    return colour if colour in KINDS[kind].colours else None


def _additions(kind: str | None, colour: str | None, place: GridPlace, scene: Scene) -> list[Edit]:
    legal = _legal_colour(kind, colour)
    if kind is None or legal is None:
        return []
    return [Add(kind, legal, GridPlace(cell=cell)) for cell in _cells(place, scene)]


def _moves(target: Target, place: GridPlace, scene: Scene) -> list[Edit]:
    cells = _cells(place, scene)
    return [Move(e, GridPlace(cell=cell)) for e in _exact_targets(target, scene) for cell in cells]


def _add_if_missing(target: Target, place: GridPlace, scene: Scene) -> list[Edit]:
    """Interpretations of a move whose target is missing."""
    if _exact_targets(target, scene):
        return []
    return _additions(target.kind, target.colour, place, scene)


def _exact_targets(target: Target, scene: Scene) -> list[Target]:
    return [
        Target(scene.cells[cell].kind, scene.cells[cell].colour, cell)
        for cell in _target_cells(target, scene)
    ]


def _target_cells(target: Target, scene: Scene) -> list[int]:
    """Cells that match the target; if none does, without its cell, then without its colour."""
    cells = scene.find(target)
    if not cells and target.kind:
        cells = scene.find(Target(target.kind, target.colour)) or scene.find(Target(target.kind))
    return cells


def _cells(place: GridPlace, scene: Scene) -> list[int]:
    """Cells at a place: an exact one even if occupied, otherwise free ones."""
    if place.cell is not None:
        return [place.cell]
    free = scene.free_cells()
    if place == ANYWHERE:
        return free
    anchors = _target_cells(place.anchor or Target(), scene)
    cells = [c for c in free if any(_is_in_direction(c, place.direction, a) for a in anchors)]
    return cells or free  # no free cell there, or no such anchor: anywhere


def _is_in_direction(cell: int, direction: str | None, anchor: int) -> bool:
    """Whether a cell is in a direction of another, in its row or column, or shares a side."""
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
