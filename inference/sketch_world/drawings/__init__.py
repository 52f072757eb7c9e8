"""Draws every kind of thing and every background of the sketch world.

A drawing is the function of the kind's or background's name in one of the modules.
"""

from collections import ChainMap

from PIL import Image

from ..object_catalog import BACKGROUNDS, COLOURS, KINDS
from ..scene import Thing
from . import animals, backgrounds, garden, home, play, shapes, sky, village
from .canvas import Canvas

# With a sticker's rim and shadow, the outer 4 % of the cell stay free.
_MARGIN = 0.035

_THEMES = ChainMap(*map(vars, (shapes, village, garden, animals, sky, home, play)))
DRAWINGS = {kind: _THEMES[kind.replace(" ", "_")] for kind in KINDS}
BACKDROPS = {name: vars(backgrounds)[name.replace(" ", "_")] for name in BACKGROUNDS}


def sprite(thing: Thing, size: int) -> Image.Image:
    """A thing as an RGBA sticker of `size` x `size` pixels (one cell)."""
    canvas = Canvas(size, _MARGIN)
    DRAWINGS[thing.kind](canvas, COLOURS[thing.colour])
    return canvas.sticker()


def backdrop(name: str, size: int) -> Image.Image:
    """A background as an RGB image of `size` x `size` pixels."""
    canvas = Canvas(size)
    BACKDROPS[name](canvas)
    return canvas.flat().convert("RGB")
