"""Everything the sketch world can draw: kinds of things, colours, backgrounds, places."""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml


@cache
def read_data(name: str) -> Any:
    """The content of a YAML file of this package."""
    return yaml.safe_load(resources.files(__package__).joinpath(f"{name}.yaml").read_text("utf-8"))


@dataclass(frozen=True)
class ObjectKind:
    """A kind of thing. `colours`: those it can have, the default first."""

    name: str
    plural: str
    colours: tuple[str, ...]

    @property
    def default_colour(self) -> str:
        return self.colours[0]


_CATALOG = read_data("catalog")
COLOURS: dict[str, tuple[int, int, int]] = {
    name: (red, green, blue) for name, (red, green, blue) in _CATALOG["colours"].items()
}
BACKGROUNDS: tuple[str, ...] = tuple(_CATALOG["backgrounds"])
# The 3x3 grid, row by row: index = 3 * row + column.
PLACES: tuple[str, ...] = (
    *("top left", "top center", "top right"),
    *("middle left", "center", "middle right"),
    *("bottom left", "bottom center", "bottom right"),
)
# Words for rows and columns of the grid.
ROWS = {"top": 0, "upper": 0, "middle": 1, "center": 1, "centre": 1, "bottom": 2, "lower": 2}
COLUMNS = {"left": 0, "middle": 1, "center": 1, "centre": 1, "right": 2}


def _kind(name: str, default: str, others: list[str] | None = None, plural: str = "") -> ObjectKind:
    possible = others if others is not None else [c for c in COLOURS if c not in ("white", default)]
    return ObjectKind(name, plural or f"{name}s", (default, *possible))


KINDS: dict[str, ObjectKind] = {
    name: _kind(name, **entry) for name, entry in _CATALOG["kinds"].items()
}
