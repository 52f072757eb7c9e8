"""Draws every kind of thing and every background of the sketch world."""

from PIL import Image

from ..canvas import Canvas
from ..object_catalog import COLOURS
from ..scene import Thing
from . import animals, backgrounds, garden, home, play, shapes, sky, village
from .brush import Drawing

# With a sticker's rim and shadow, the outer 4 % of the cell stay free.
_MARGIN = 0.035

DRAWINGS: dict[str, Drawing] = {
    name: drawing
    for theme in (shapes, village, garden, animals, sky, home, play)
    for name, drawing in theme.DRAWINGS.items()
}


def draw(canvas: Canvas, thing: Thing) -> None:
    """Draw a thing on a canvas that is its cell, leaving the margin free."""
    DRAWINGS[thing.kind](canvas, COLOURS[thing.colour])


def draw_background(canvas: Canvas, name: str) -> None:
    """Draw a background over the whole canvas."""
    backgrounds.BACKDROPS[name](canvas)


def sprite(thing: Thing, size: int) -> Image.Image:
    """A thing as an RGBA sticker of `size` x `size` pixels (one cell)."""
    canvas = Canvas(size, _MARGIN)
    draw(canvas, thing)
    return canvas.sticker()


def backdrop(name: str, size: int) -> Image.Image:
    """A background as an RGB image of `size` x `size` pixels."""
    canvas = Canvas(size)
    draw_background(canvas, name)
    return canvas.flat().convert("RGB")
