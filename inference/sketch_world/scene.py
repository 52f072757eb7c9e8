"""A scene (what an image shows), the edits that a prompt can ask for, and what they do to it.

A scene is a background and at most one thing per cell of a 3x3 grid. Edits are plain data:
`prompt_parser` reads them from English, `prompt_writer` writes them, the generator applies them
(perhaps with mistakes), the critic and the scorer compare their result with an image.

English is ambiguous: "next to the house" is several cells, "the cat" may be any of two. So an edit
has interpretations: the exact edits (with every kind, colour and cell) that would fulfil it. The
generator chooses among them at random, the critic and the scorer in favour of what was drawn, so
that any fulfilling image counts.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

import numpy as np

from .object_catalog import KINDS
from .seeded_random import pick


@dataclass(frozen=True)
class Thing:
    """A coloured thing, such as a red house. Names are those of `object_catalog`."""

    kind: str
    colour: str


@dataclass(frozen=True)
class Scene:
    """A background and the things in its cells (0-8, row by row)."""

    background: str = "paper"
    cells: Mapping[int, Thing] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.key(any_place=False))

    def key(self, any_place: bool) -> Hashable:
        """Equal for scenes of the same things in the same cells; with `any_place`, in any cells."""
        things = Counter(self.cells.values()) if any_place else self.cells
        return self.background, frozenset(things.items())

    def with_cell(self, cell: int, thing: Thing | None) -> "Scene":
        others = {c: t for c, t in self.cells.items() if c != cell}
        return Scene(self.background, others | ({cell: thing} if thing else {}))

    def free_cells(self) -> list[int]:
        return [c for c in range(9) if c not in self.cells]

    def exact_targets(self) -> list["Target"]:
        """All things, by kind, colour and cell."""
        return [Target(t.kind, t.colour, cell) for cell, t in sorted(self.cells.items())]

    def find(self, target: "Target") -> list["Target"]:
        """The exact targets that a target may mean."""
        named = {name: value for name, value in vars(target).items() if value is not None}
        return [exact for exact in self.exact_targets() if named.items() <= vars(exact).items()]


@dataclass(frozen=True)
class Target:
    """A thing in the scene, by any of kind, colour and cell ("the red house"); None: any."""

    kind: str | None = None
    colour: str | None = None
    cell: int | None = None


Direction = Literal["left of", "right of", "above", "below", "next to"]


@dataclass(frozen=True)
class GridPlace:
    """Where: an exact cell, a relation to a target, or (both None) anywhere that is free."""

    cell: int | None = None
    direction: Direction | None = None
    anchor: Target | None = None


ANYWHERE = GridPlace()


@dataclass(frozen=True)
class Add:
    """Put a new thing somewhere. `colour` None: the kind's default."""

    kind: str
    colour: str | None = None
    place: GridPlace = ANYWHERE


@dataclass(frozen=True)
class Remove:
    target: Target


@dataclass(frozen=True)
class Recolour:
    target: Target
    colour: str


@dataclass(frozen=True)
class Move:
    target: Target
    place: GridPlace


@dataclass(frozen=True)
class Replace:
    """Turn a thing into another in the same cell (a seed into a sprout)."""

    target: Target
    kind: str
    colour: str | None = None


@dataclass(frozen=True)
class SetBackground:
    background: str


@dataclass(frozen=True)
class Create:
    """A new scene: what a text-to-image prompt asks for."""

    background: str
    things: tuple[Add, ...] = ()


Edit = Add | Remove | Recolour | Move | Replace | SetBackground | Create


def edited_cell(exact: Edit) -> int | None:
    """The cell that an exact edit fills, changes or empties; None: it is about the background."""
    match exact:
        case Add(place=place) | Move(place=place):
            return place.cell
        case Remove(target) | Recolour(target) | Replace(target):
            return target.cell
    return None


@dataclass(frozen=True)
class Command:
    """What a prompt asks for. No edits: nothing was understood.

    `keep`: it asks to keep everything else unchanged.
    """

    edits: tuple[Edit, ...]
    keep: bool = False


def make_cells(cells: Iterable[tuple[int, str, str]]) -> dict[int, Thing]:
    """Cells from (cell, kind, colour) triples."""
    return {cell: Thing(kind, colour) for cell, kind, colour in cells}


Choose = Callable[[Scene, Sequence[Edit]], Edit]


@dataclass(frozen=True)
class EditResult:
    """The scene after a command, the exact edits that led there, and how many were impossible.

    Impossible: a colour that the kind cannot have (a blue sun), or no free cell.
    """

    scene: Scene
    exact_edits: tuple[Edit, ...]
    impossible: int = 0


def first_option(_: Scene, options: Sequence[Edit]) -> Edit:
    return options[0]


def at_random(rng: np.random.Generator) -> Choose:
    return lambda _, options: pick(rng, options)


def closest_to(actual: Scene, command: Command) -> Choose:
    """Choose the interpretation that comes closest to a scene that was drawn for the command."""
    requested_kinds = {edit.kind for edit in simple_edits(command) if isinstance(edit, Add)}

    def score(scene: Scene, option: Edit) -> float:
        similarity = _similarity(apply_edit(option, scene), actual)
        match option:  # an addition must not take the cell of another requested thing
            case Add(kind, _, GridPlace(int(cell))) if cell in actual.cells:
                similarity -= 2 * (actual.cells[cell].kind in requested_kinds - {kind})
        return similarity

    return lambda scene, options: max(options, key=lambda option: score(scene, option))


def carry_out(command: Command, before: Scene | None, choose: Choose = first_option) -> EditResult:
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


def scene_after(edits: Sequence[Edit], before: Scene | None) -> Scene | None:
    """The scene after the edits (first interpretations); None: one of them is impossible."""
    result = carry_out(Command(tuple(edits)), before)
    return None if result.impossible else result.scene


def _similarity(a: Scene, b: Scene) -> float:
    """How many of the nine cells agree; the same kind in another colour counts half."""
    pairs = [(a.cells.get(cell), b.cells.get(cell)) for cell in range(9)]
    kinds = [(x and x.kind, y and y.kind) for x, y in pairs]
    return sum(x == y for x, y in pairs) / 2 + sum(x == y for x, y in kinds) / 2


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
    target = edit.target
    targets = _find(target, scene)
    match edit:
        case Remove():
            return [Remove(t) for t in targets or [Target(target.kind, target.colour)]]
        case Recolour(_, colour) if targets:
            return [Recolour(t, colour) for t in targets if _legal_colour(t.kind, colour)]
        case Recolour(_, colour):
            return _additions(target.kind, colour, GridPlace(target.cell), scene)
        case Move(_, place) if targets:
            return [Move(t, GridPlace(c)) for t, c in product(targets, _cells(place, scene))]
        case Move(_, place):
            return _additions(target.kind, target.colour, place, scene)
        case Replace(_, kind, colour):
            if targets and (legal := _legal_colour(kind, colour)):
                return [Replace(t, kind, legal) for t in targets]
            return _additions(kind, colour, GridPlace(target.cell), scene)


def apply_edit(exact: Edit, scene: Scene) -> Scene:
    """The scene after an exact edit (one of `interpretations`)."""
    match exact:
        case Create(background):
            return Scene(background)
        case SetBackground(background):
            return Scene(background, scene.cells)
        case Remove(Target(cell=None)):
            return scene
        case Remove(Target(cell=int(cell))):
            return scene.with_cell(cell, None)
        case Move(Target(cell=int(start)), GridPlace(int(end))):
            return scene.with_cell(start, None).with_cell(end, scene.cells[start])
        case (
            Add(kind, str(colour), GridPlace(int(cell)))
            | Recolour(Target(kind=str(kind), cell=int(cell)), colour)
            | Replace(Target(cell=int(cell)), kind, str(colour))
        ):
            return scene.with_cell(cell, Thing(kind, colour))
    raise ValueError(f"not an exact edit: {exact}")


def _legal_colour(kind: str | None, colour: str | None) -> str | None:
    """The colour, or the kind's default; None: the kind cannot have that colour."""
    colours = KINDS[kind].colours if kind in KINDS else ()
    return next((c for c in colours if colour in (None, c)), None)


def _additions(kind: str | None, colour: str | None, place: GridPlace, scene: Scene) -> list[Edit]:
    legal = _legal_colour(kind, colour)
    if kind is None or legal is None:
        return []
    return [Add(kind, legal, GridPlace(cell)) for cell in _cells(place, scene)]


def _find(target: Target, scene: Scene) -> list[Target]:
    """What a target may mean; if nothing, without its cell, then without its colour."""
    looser = [Target(target.kind, target.colour), Target(target.kind)] if target.kind else []
    return next(filter(None, map(scene.find, [target, *looser])), [])


def _cells(place: GridPlace, scene: Scene) -> list[int]:
    """Cells at a place: an exact one even if occupied, otherwise free ones."""
    if place.cell is not None:
        return [place.cell]
    free = scene.free_cells()
    if place == ANYWHERE:
        return free
    anchors = [t.cell for t in _find(place.anchor or Target(), scene) if t.cell is not None]
    cells = [c for c in free if any(is_in_direction(c, place.direction, a) for a in anchors)]
    return cells or free  # no free cell there, or no such anchor: anywhere


def is_in_direction(cell: int, direction: str | None, anchor: int) -> bool:
    """Whether a cell is in a direction of another, in its row or column, or shares a side."""
    down, right = cell // 3 - anchor // 3, cell % 3 - anchor % 3
    aligned = {
        "left of": down == 0 and right < 0,
        "right of": down == 0 and right > 0,
        "above": right == 0 and down < 0,
        "below": right == 0 and down > 0,
        "next to": abs(down) + abs(right) == 1,
    }
    return aligned[direction or "next to"]
