"""Images are deterministic; drawings are complete, stay in their cells and are distinguishable."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from inference.sketch_world.canvas import Canvas
from inference.sketch_world.drawings import BACKDROPS, DRAWINGS
from inference.sketch_world.object_catalog import BACKGROUNDS, COLOURS, KINDS
from inference.sketch_world.renderer import Flaws, background, render, sprite
from inference.sketch_world.scene import Scene, Thing, make_cells
from schemas import FoundryError

_CELL = 32
SCENE = Scene("meadow", make_cells([(0, "house", "red"), (8, "cat", "orange")]))


@cache
def backdrop(name: str) -> Image.Image:
    """The middle cell of a background."""
    image = background(name, 3 * _CELL)
    return image.crop((_CELL, _CELL, 2 * _CELL, 2 * _CELL)).convert("RGBA")


def cell(kind: str, colour: str, surface: str = "paper") -> np.ndarray:
    """A thing in the middle cell of a background, as float pixels."""
    image = backdrop(surface).copy()
    if kind:
        image.alpha_composite(sprite(Thing(kind, colour), _CELL))
    return np.asarray(image.convert("RGB"), dtype=float)


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Mean absolute difference per pixel and channel, 0-255."""
    return float(np.abs(a - b).mean())


def test_every_thing_and_background_has_a_drawing():
    assert DRAWINGS.keys() == KINDS.keys()
    assert BACKDROPS.keys() == set(BACKGROUNDS)


def test_things_keep_a_margin_of_four_percent():
    for kind in KINDS:
        for size in [32, 64, 100]:
            sticker = sprite(Thing(kind, KINDS[kind].default_colour), size)
            left, top, right, bottom = sticker.getchannel("A").getbbox()
            margin = int(0.04 * size)
            assert min(left, top, size - right, size - bottom) >= margin


def test_colours_of_a_kind_differ_visibly():
    for kind in KINDS:
        for first, second in combinations(KINDS[kind].colours, 2):
            assert difference(cell(kind, first), cell(kind, second)) > 2, (first, second)


def test_kinds_of_a_colour_differ_visibly():
    for colour in COLOURS:
        kinds = [kind for kind in KINDS.values() if colour in kind.colours]
        for first, second in combinations(kinds, 2):
            apart = difference(cell(first.name, colour), cell(second.name, colour))
            assert apart > 4, (first.name, second.name)


def test_things_are_readable_on_every_background():
    for surface in BACKGROUNDS:
        empty = cell("", "", surface)
        for kind in KINDS.values():
            for colour in kind.colours:
                apart = np.abs(cell(kind.name, colour, surface) - empty).max(axis=2)
                assert (apart > 30).mean() > 0.04, (kind.name, colour)


def test_backgrounds_differ_visibly():
    images = [np.asarray(background(name, 96), dtype=float) for name in BACKGROUNDS]
    assert all(difference(a, b) > 5 for a, b in combinations(images, 2))


def test_backgrounds_are_fully_opaque():
    for name in BACKGROUNDS:
        canvas = Canvas(96)
        BACKDROPS[name](canvas)
        assert canvas.flat().getchannel("A").getextrema() == (255, 255), name


def test_a_thing_shows_its_colour():
    for kind in KINDS.values():
        for colour in kind.colours:
            pixels = np.asarray(sprite(Thing(kind.name, colour), _CELL))
            near = np.abs(pixels[..., :3].astype(int) - COLOURS[colour]).max(axis=2) < 40
            assert (near & (pixels[..., 3] > 200)).sum() > 12, (kind.name, colour)


def test_images_have_the_requested_size_and_are_deterministic():
    for size in [96, 150, 192, 384]:
        image = render(SCENE, size)
        assert image.size == (size, size)
        assert image.mode == "RGB"
        assert image.tobytes() == render(SCENE, size).tobytes()


def test_invalid_sizes_raise():
    for size in [0, 93, 100]:
        with pytest.raises(FoundryError, match="multiple of 3"):
            render(SCENE, size)


def test_a_thing_stays_in_its_cell():
    with_house = np.asarray(render(SCENE.with_cell(4, Thing("house", "blue"))))
    changed = (with_house != np.asarray(render(SCENE))).any(axis=-1)
    assert changed[64:128, 64:128].any()
    changed[66:126, 66:126] = False
    assert not changed.any()


def test_flaws_show_only_where_they_are():
    flawed = np.asarray(render(SCENE, 192, Flaws(crooked=[0], blemished=[4], seed=3)))
    changed = (flawed != np.asarray(render(SCENE))).any(axis=-1)
    assert changed[:64, :64].any()
    assert changed[64:128, 64:128].any()
    changed[:64, :64] = changed[64:128, 64:128] = False
    assert not changed.any()
