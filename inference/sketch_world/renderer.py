"""Scenes to pixels: anti-aliased, deterministic, at any size.

Each thing stays inside its cell of the grid. Flaws (crooked things and scribbles) are drawn here
as well.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from PIL import Image, ImageDraw

from schemas import FoundryError

from .canvas import Canvas
from .drawings import BACKDROPS, DRAWINGS
from .object_catalog import COLOURS
from .scene import Scene, Thing
from .seeded_random import pick, random_by

# Smaller images are drawn at this size and averaged down, so that they show the same lines.
SIZE = 192
MIN_SIZE = 96
TILTS = (-14.0, 14.0)  # degrees of a crooked thing
_SQUEEZE = 0.8  # relative width of a crooked thing, so that a crooked ball shows, too

_MARGIN = 0.04  # share of a cell's side that stays free of things and blemishes
_BORDER = 0.035  # what a drawing leaves free: with a sticker's rim and shadow, 4 % of the cell
_INKS = ((38, 34, 58), (188, 44, 120), (24, 128, 132), (120, 66, 24))


@dataclass(frozen=True)
class Flaws:
    """Cells with crooked things and cells with a scribble."""

    crooked: Collection[int] = ()
    blemished: Collection[int] = ()
    seed: int = 0


def render(scene: Scene, size: int = SIZE, flaws: Flaws | None = None) -> Image.Image:
    """Draw a scene, RGB, `size` x `size` pixels.

    Raises:
        FoundryError: the size is below 96 or not a multiple of 3.
    """
    if size < MIN_SIZE or size % 3:
        raise FoundryError(f"image size {size}: choose a multiple of 3, at least {MIN_SIZE}")
    flaws = flaws or Flaws()
    image = background(scene.background, size).copy()
    for cell, thing in sorted(scene.cells.items()):
        is_crooked = cell in flaws.crooked
        tilt = pick(random_by("tilt", flaws.seed, cell), TILTS) if is_crooked else 0.0
        sticker = sprite(thing, size // 3, tilt)
        image.paste(sticker, _corner(cell, size), sticker)
    for cell in sorted(flaws.blemished):
        scribble = _scribble(flaws.seed, cell, size // 3)
        image.paste(scribble, _corner(cell, size), scribble)
    return image


@lru_cache(maxsize=64)
def background(name: str, size: int) -> Image.Image:
    """An empty scene, RGB."""
    detail = max(1, -(-SIZE // size))
    canvas = Canvas(detail * size)
    BACKDROPS[name](canvas)
    return canvas.flat().convert("RGB").reduce(detail)


@lru_cache(maxsize=4096)
def sprite(thing: Thing, side: int, tilt: float = 0.0) -> Image.Image:
    """A thing alone, RGBA, `side` x `side` pixels; `tilt` in degrees makes it crooked."""
    detail = max(1, -(-SIZE // (3 * side)))
    sticker = _upright_sprite(thing, detail * side)
    return (_make_crooked(sticker, tilt) if tilt else sticker).reduce(detail)


@lru_cache(maxsize=4096)
def _upright_sprite(thing: Thing, side: int) -> Image.Image:
    canvas = Canvas(side, _BORDER)
    DRAWINGS[thing.kind](canvas, COLOURS[thing.colour])
    return canvas.sticker()


def _make_crooked(sticker: Image.Image, tilt: float) -> Image.Image:
    """Squeezed, rotated about its centre and cropped to the cell."""
    side, margin = sticker.width, max(1, round(_MARGIN * sticker.width))
    rotated = sticker.convert("RGBa").transform(
        (side, side),
        Image.Transform.AFFINE,
        _inverse_transform(tilt, side / 2),
        Image.Resampling.BICUBIC,
    )
    inner = Image.new("RGBa", (side, side))
    inner.paste(rotated.crop((margin, margin, side - margin, side - margin)), (margin, margin))
    return inner.convert("RGBA")


def _inverse_transform(tilt: float, centre: float) -> tuple[float, ...]:
    """The affine map from a crooked thing's pixels back to the upright one's."""
    cos, sin = math.cos(math.radians(tilt)), math.sin(math.radians(tilt))
    rows = ((cos / _SQUEEZE, sin / _SQUEEZE), (-sin, cos))
    return tuple(v for a, b in rows for v in (a, b, centre - centre * (a + b)))


@lru_cache(maxsize=256)
def _scribble(seed: int, cell: int, side: int) -> Image.Image:
    """A random pen stroke across the cell, RGBA, with a pale rim to be visible on dark things."""
    rng = random_by("scribble", seed, cell)
    big = 4 * side
    image = Image.new("RGBA", (big, big), (0, 0, 0, 0))
    margin = (_MARGIN + 0.06) * big
    line = [(float(x), float(y)) for x, y in rng.uniform(margin, big - margin, size=(7, 2))]
    ink = pick(rng, _INKS)
    pen = ImageDraw.Draw(image)
    pen.line(line, fill=(255, 255, 255, 255), width=round(0.075 * big), joint="curve")
    pen.line(line, fill=(*ink, 255), width=round(0.045 * big), joint="curve")
    return image.convert("RGBa").resize((side, side), Image.Resampling.BOX).convert("RGBA")


def _corner(cell: int, size: int) -> tuple[int, int]:
    row, column = divmod(cell, 3)
    return column * (size // 3), row * (size // 3)
