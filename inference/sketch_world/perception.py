"""Pixels to scenes: what a picture of the sketch world shows.

Every cell is compared with every thing as it would look there (render and compare). Differences
are capped pixel by pixel, so that a scribble over a thing does not hide what it is; pixels that
nothing explains are the blemish. Pictures from elsewhere get the nearest match and a low
confidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from PIL import Image

from warehouse import EncodedImage

from .object_catalog import BACKGROUNDS, KINDS
from .renderer import TILTS, background, sprite
from .scene import Scene, Thing

_CELL = 32  # pixels of a cell's side while looking
_COARSE = 8  # blocks of a cell's side in the first, rough comparison
_GUESSES = 4  # things that are tried first
_CANDIDATES = 20  # things that are looked at closely where none of them is the one
_CAP = 60.0  # a pixel's difference (0-255, per channel) counts at most this much
_SAME = 1.5  # mean difference below which two cells are the same
_WORTH = 0.8  # a thing must explain some of what an empty cell leaves unexplained
_OFF = 40.0  # a pixel further off than this is unexplained
_WHITE = 253.0  # a canvas of nothing darker is blank
_BLEMISH = 0.03  # share of unexplained pixels that makes a blemish

Pixels = np.ndarray  # float32, (..., height, width, 3 or 1)


@dataclass(frozen=True)
class Perceived:
    """What a picture shows. `confidence`: share of its pixels that the scene explains, 0-1."""

    scene: Scene
    crooked: frozenset[int] = frozenset()
    blemished: frozenset[int] = frozenset()
    confidence: float = 1.0


@dataclass(frozen=True)
class _Look:
    thing: Thing | None
    tilt: float
    difference: float
    unexplained: float


@lru_cache(maxsize=256)
def perceive_cached(picture: EncodedImage) -> Perceived:
    """`perceive`, remembered by the picture's bytes.

    Raises:
        BadImageError: the bytes are no picture.
    """
    return perceive(picture.image)


def perceive(image: Image.Image) -> Perceived:
    """The scene in an RGB image of any size, from its pixels alone.

    A blank white canvas is an empty sheet of paper: it stands for "nothing yet" (facts of the
    paper's code: the critic gets one as the picture before the first).
    """
    pixels = _pixels(image.convert("RGB"))
    if pixels.min() >= _WHITE:
        return Perceived(Scene())
    name = _nearest_background(pixels)
    cells, empty = _cells(pixels), _cells(_backgrounds()[BACKGROUNDS.index(name)])
    guesses = _guesses(_blocks(cells), _blocks(empty))
    looks = [_look(*each) for each in zip(cells, empty, guesses, strict=True)]
    return Perceived(
        Scene(name, {c: seen.thing for c, seen in enumerate(looks) if seen.thing}),
        crooked=frozenset(c for c, seen in enumerate(looks) if seen.tilt),
        blemished=frozenset(c for c, seen in enumerate(looks) if seen.unexplained > _BLEMISH),
        confidence=1 - float(np.mean([seen.unexplained for seen in looks])),
    )


def _look(cell: Pixels, empty: Pixels, guesses: Sequence[int]) -> _Look:
    """The best explanation of a cell: nothing, a thing, a crooked thing."""
    nothing = _compare(cell, empty, None)
    if nothing.difference < _SAME:
        return nothing
    thing = _first_same(cell, empty, guesses, 0.0) or _best_thing(cell, empty)
    return thing if thing.difference < _WORTH * nothing.difference else nothing


def _best_thing(cell: Pixels, empty: Pixels) -> _Look:
    """The thing most like the cell; crooked ones only where no straight one fits."""
    best = _Look(None, 0.0, float("inf"), 1.0)
    for tilt in (0.0, *TILTS):
        for index in _nearest_things(cell, empty, tilt):
            seen = _compare_thing(cell, empty, index, tilt)
            best = min(best, seen, key=lambda look: look.difference)
            if best.difference < _SAME:
                return best
    return best


def _first_same(cell: Pixels, empty: Pixels, guesses: Sequence[int], tilt: float) -> _Look | None:
    looks = (_compare_thing(cell, empty, index, tilt) for index in guesses)
    return next((seen for seen in looks if seen.difference < _SAME), None)


def _compare_thing(cell: Pixels, empty: Pixels, index: int, tilt: float) -> _Look:
    paint, through = _sticker(_things()[index], tilt)
    return _compare(cell, paint + through * empty, _things()[index], tilt)


def _compare(cell: Pixels, expected: Pixels, thing: Thing | None, tilt: float = 0.0) -> _Look:
    gap = np.abs(cell - expected)
    unexplained = float((gap.max(axis=-1) > _OFF).mean())
    return _Look(thing, tilt, float(np.minimum(gap, _CAP).mean()), unexplained)


def _guesses(cells: Pixels, empty: Pixels) -> np.ndarray:
    """For each of the nine cells, the things nearest in squares, by index, best first.

    Squares are quick, for |paint + through * empty - cell|^2 comes apart into a few products,
    and enough for clean pictures; a scribble misleads them.
    """
    paint, through, both = _factors()
    product = (cells * empty).sum(axis=-1).reshape(9, -1)
    square = (empty * empty).sum(axis=-1).reshape(9, -1)
    gaps = (paint * paint).sum(axis=1) - 2 * _products(cells.reshape(9, -1), paint)
    gaps += 2 * _products(empty.reshape(9, -1), both)
    gaps += _products(square, through * through) - 2 * _products(product, through)
    return np.argsort(gaps, axis=1)[:, :_GUESSES]


def _products(rows: Pixels, others: Pixels) -> Pixels:
    """All pairs' scalar products. Not `@`: its threads cost more than they bring here."""
    return np.einsum("if,jf->ij", rows, others)


@cache
def _factors() -> tuple[Pixels, Pixels, Pixels]:
    """Paint, what shines through, and their product, a row a thing."""
    paint, through = _coarse_stickers(0.0)
    rows = len(paint)
    both = (paint * through).reshape(rows, -1)
    return paint.reshape(rows, -1), through.reshape(rows, -1), both


def _nearest_things(cell: Pixels, empty: Pixels, tilt: float) -> list[int]:
    """Things that roughly look like the cell, by index, best first."""
    paint, through = _coarse_stickers(tilt)
    gaps = through * _blocks(empty)
    gaps += paint - _blocks(cell)
    np.abs(gaps, out=gaps)
    np.minimum(gaps, _CAP, out=gaps)
    gaps = gaps.sum(axis=(1, 2, 3))
    nearest = np.argpartition(gaps, _CANDIDATES)[:_CANDIDATES]
    return [int(i) for i in nearest[np.argsort(gaps[nearest], kind="stable")]]


def _nearest_background(pixels: Pixels) -> str:
    """Judged by the rims of the cells, which nothing covers."""
    gaps = np.abs(_backgrounds() - pixels)[:, _rims()]
    return BACKGROUNDS[int(gaps.mean(axis=(1, 2)).argmin())]


@cache
def _things() -> list[Thing]:
    return [Thing(kind.name, colour) for kind in KINDS.values() for colour in kind.colours]


@lru_cache(maxsize=4096)
def _sticker(thing: Thing, tilt: float = 0.0) -> tuple[Pixels, Pixels]:
    """The thing's paint (premultiplied) and how much shines through, per pixel."""
    image = sprite(thing, 2 * _CELL, tilt).convert("RGBa").reduce(2)
    pixels = np.asarray(image, dtype=np.float32)
    return pixels[..., :3], 1 - pixels[..., 3:] / 255


@cache
def _coarse_stickers(tilt: float) -> tuple[Pixels, Pixels]:
    stickers = [_sticker(thing, tilt) for thing in _things()]
    paint, through = zip(*stickers, strict=True)
    return _blocks(np.stack(paint)), _blocks(np.stack(through))


@cache
def _backgrounds() -> Pixels:
    return np.stack([_pixels(background(name, 6 * _CELL)) for name in BACKGROUNDS])


@cache
def _rims() -> Pixels:
    """Mask of the outermost pixels of every cell."""
    inner = np.zeros((_CELL, _CELL), dtype=bool)
    inner[1:-1, 1:-1] = True
    return np.tile(~inner, (3, 3))


def _pixels(image: Image.Image) -> Pixels:
    side = 3 * _CELL
    if image.size != (side, side):
        image = image.resize((side, side), Image.Resampling.BOX)
    return np.asarray(image, dtype=np.float32)


def _cells(pixels: Pixels) -> Pixels:
    """The nine cells, row by row."""
    grid = pixels.reshape(3, _CELL, 3, _CELL, 3)
    return grid.swapaxes(1, 2).reshape(9, _CELL, _CELL, 3)


def _blocks(pixels: Pixels) -> Pixels:
    """Averages over blocks of the last two spatial axes."""
    *outer, _, _, channels = pixels.shape
    step = _CELL // _COARSE
    blocks = pixels.reshape(*outer, _COARSE, step, _COARSE, step, channels)
    return blocks.mean(axis=(-4, -2))
