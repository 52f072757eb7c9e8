"""Shared by the drawings: their type, palette, eyes and smiles."""

from collections.abc import Callable

from ..canvas import RGB, Canvas

Drawing = Callable[[Canvas, RGB], None]

INK: RGB = (44, 42, 54)
WOOD: RGB = (138, 92, 58)
LEAF: RGB = (74, 158, 84)
STEM: RGB = (56, 128, 66)
WHITE: RGB = (255, 255, 255)
PAPER: RGB = (252, 248, 238)
SKIN: RGB = (250, 206, 166)
GOLD: RGB = (250, 204, 72)
GLASS: RGB = (190, 226, 246)
STEEL: RGB = (120, 128, 140)


def eye(canvas: Canvas, x: float, y: float, radius: float = 0.04) -> None:
    """A round eye with a glint."""
    canvas.circle(x, y, radius, INK)
    canvas.circle(x + radius * 0.3, y - radius * 0.35, radius * 0.36, WHITE)


def big_eye(canvas: Canvas, x: float, y: float, radius: float = 0.07) -> None:
    """A white eye with a pupil, readable on dark fur."""
    canvas.circle(x, y, radius, WHITE)
    canvas.circle(x, y + radius * 0.1, radius * 0.58, INK)


def smile(canvas: Canvas, x: float, y: float, width: float, colour: RGB = INK) -> None:
    """A small smiling mouth."""
    canvas.curve(
        [(x - width / 2, y), (x, y + width * 0.35), (x + width / 2, y)], width * 0.18, colour
    )


def is_dark(colour: RGB) -> bool:
    """Whether details on this colour should be light."""
    return 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] < 70
