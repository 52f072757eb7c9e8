"""A scene (what an image shows) and the edits that a prompt can ask for.

A scene is a background and at most one thing per cell of a 3x3 grid. Edits are plain data:
`prompt_parser` reads them from English, `prompt_writer` writes them, the generator applies them
(perhaps with mistakes), the critic and the scorer compare their result with an image.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal


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
