"""Recovers scenes from pixels by analysis by synthesis.

Every cell is compared with every thing as it would be rendered there. Pixel differences are
capped, so that a scribble over a thing does not hide what it is; unexplained pixels are the
blemish. Images from other sources get the nearest match and a low confidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from PIL import Image

from warehouse import EncodedImage

from .object_catalog import BACKGROUNDS, KINDS
from .renderer import TILTS, background, sprite
from .scene import Scene, Thing

_CELL = 32  # side of a cell in pixels
_COARSE = 8  # side of a cell in blocks, for coarse comparisons
_FIRST_CANDIDATES = 4  # things compared in full first
_CANDIDATES = 20  # things compared in full if none of those matches
_MAX_DIFFERENCE = 60.0  # cap of a pixel's difference (0-255, per channel)
_MATCH_BELOW = 1.5  # mean difference of cells that match
_MAX_RATIO = 0.8  # a thing's difference relative to that of an empty cell
_UNEXPLAINED_ABOVE = 40.0  # difference of an unexplained pixel
_BLANK_FROM = 253.0  # darkest value of a blank image
_BLEMISH_ABOVE = 0.03  # share of unexplained pixels in a blemished cell

Pixels = np.ndarray  # float32, (..., height, width, 3 or 1)


@dataclass(frozen=True)
class Perception:
    """What an image shows.

    Attributes:
        crooked: cells with crooked things.
        blemished: cells with a scribble.
        confidence: share of pixels that the scene explains, 0-1.
    """

    scene: Scene
    crooked: frozenset[int] = frozenset()
    blemished: frozenset[int] = frozenset()
    confidence: float = 1.0


class _CellMatch(NamedTuple):
    """A thing (None: nothing) compared with a cell, `tilt` in degrees."""

    thing: Thing | None
    tilt: float
    difference: float
    unexplained: float


@lru_cache(maxsize=256)
def perceive_cached(image: EncodedImage) -> Perception:
    """`perceive`, cached by the image's bytes; raises BadImageError."""
    return perceive(image.image)


def perceive(image: Image.Image) -> Perception:
    """The scene in an image of any size."""
    pixels = _pixels(image.convert("RGB"))
    if pixels.min() >= _BLANK_FROM:  # blank, as the paper's code gives the critic at first
        return Perception(Scene())
    gaps = np.abs(_backgrounds() - pixels)[:, _rims()]  # which things never cover
    nearest = int(gaps.mean(axis=(1, 2)).argmin())
    cells, empty = _cells(pixels), _cells(_backgrounds()[nearest])
    candidates = _first_candidates(_blocks(cells), _blocks(empty))
    matches = [_match_cell(*args) for args in zip(cells, empty, candidates, strict=True)]
    unexplained = [match.unexplained for match in matches]
    return Perception(
        Scene(BACKGROUNDS[nearest], {c: m.thing for c, m in enumerate(matches) if m.thing}),
        crooked=frozenset(c for c, match in enumerate(matches) if match.tilt),
        blemished=frozenset(c for c, share in enumerate(unexplained) if share > _BLEMISH_ABOVE),
        confidence=1 - float(np.mean(unexplained)),
    )


def _match_cell(cell: Pixels, empty: Pixels, candidates: Sequence[int]) -> _CellMatch:
    nothing = _compare(cell, empty, None)
    if nothing.difference < _MATCH_BELOW:
        return nothing
    thing = _best_match(cell, empty, candidates)
    return thing if thing.difference < _MAX_RATIO * nothing.difference else nothing


def _best_match(cell: Pixels, empty: Pixels, candidates: Sequence[int]) -> _CellMatch:
    """A candidate that matches, else the thing most like the cell; crooked ones come last."""
    best = _CellMatch(None, 0.0, float("inf"), 1.0)
    for tilt in (None, 0.0, *TILTS):
        for index in candidates if tilt is None else _nearest_things(cell, empty, tilt):
            thing = _things()[index]
            paint, transmittance = _sprite_layers(thing, tilt or 0.0)
            match = _compare(cell, paint + transmittance * empty, thing, tilt or 0.0)
            if match.difference < _MATCH_BELOW:
                return match
            if tilt is not None and match.difference < best.difference:
                best = match
    return best


def _compare(cell: Pixels, expected: Pixels, thing: Thing | None, tilt: float = 0.0) -> _CellMatch:
    gaps = np.abs(cell - expected)
    unexplained = float((gaps.max(axis=-1) > _UNEXPLAINED_ABOVE).mean())
    return _CellMatch(thing, tilt, float(np.minimum(gaps, _MAX_DIFFERENCE).mean()), unexplained)


def _first_candidates(cells: Pixels, empty: Pixels) -> np.ndarray:
    """For each of the nine cells, the things nearest in squared distance, by index, best first.

    Fast, as |paint + transmittance * empty - cell|^2 is a sum of a few products, but not robust
    against scribbles.
    """
    paint, transmittance, both = _factors()
    gaps = (paint * paint).sum(axis=1) - 2 * _products(cells, paint)
    gaps += 2 * _products(empty, both)
    squares = _products((empty * empty).sum(axis=-1), transmittance * transmittance)
    gaps += squares - 2 * _products((cells * empty).sum(axis=-1), transmittance)
    return np.argsort(gaps, axis=1)[:, :_FIRST_CANDIDATES]


def _products(cells: Pixels, things: Pixels) -> Pixels:
    """Scalar products of all pairs. `@` is slower here, because of its threads."""
    return np.einsum("if,jf->ij", cells.reshape(9, -1), things)


@cache
def _factors() -> tuple[Pixels, Pixels, Pixels]:
    """Paint, transmittance and their product, one row per thing."""
    paint, transmittance = _coarse_layers(0.0)
    rows = len(paint)
    both = (paint * transmittance).reshape(rows, -1)
    return paint.reshape(rows, -1), transmittance.reshape(rows, -1), both


def _nearest_things(cell: Pixels, empty: Pixels, tilt: float) -> list[int]:
    """Things nearest to the cell in a coarse comparison, by index, best first."""
    paint, transmittance = _coarse_layers(tilt)
    gaps = transmittance * _blocks(empty)
    gaps += paint - _blocks(cell)
    np.abs(gaps, out=gaps)
    np.minimum(gaps, _MAX_DIFFERENCE, out=gaps)
    gaps = gaps.sum(axis=(1, 2, 3))
    nearest = np.argpartition(gaps, _CANDIDATES)[:_CANDIDATES]
    return [int(i) for i in nearest[np.argsort(gaps[nearest], kind="stable")]]


@cache
def _things() -> list[Thing]:
    return [Thing(kind.name, colour) for kind in KINDS.values() for colour in kind.colours]


@lru_cache(maxsize=4096)
def _sprite_layers(thing: Thing, tilt: float) -> tuple[Pixels, Pixels]:
    """The thing's premultiplied colours and its transmittance (0-1), per pixel."""
    image = sprite(thing, 2 * _CELL, tilt).convert("RGBa").reduce(2)
    pixels = np.asarray(image, dtype=np.float32)
    return pixels[..., :3], 1 - pixels[..., 3:] / 255


@cache
def _coarse_layers(tilt: float) -> tuple[Pixels, Pixels]:
    layers = [_sprite_layers(thing, tilt) for thing in _things()]
    paint, transmittance = zip(*layers, strict=True)
    return _blocks(np.stack(paint)), _blocks(np.stack(transmittance))


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
    grid = pixels.reshape(3, _CELL, 3, _CELL, 3)
    return grid.swapaxes(1, 2).reshape(9, _CELL, _CELL, 3)


def _blocks(pixels: Pixels) -> Pixels:
    """Averages over blocks of the last two spatial axes."""
    *outer, _, _, channels = pixels.shape
    step = _CELL // _COARSE
    blocks = pixels.reshape(*outer, _COARSE, step, _COARSE, step, channels)
    return blocks.mean(axis=(-4, -2))
