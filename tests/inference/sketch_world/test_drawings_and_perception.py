"""Drawings are complete, distinguishable and in their cells; images are perceived as drawn."""

from functools import cache, lru_cache
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from inference.sketch_world.canvas import Canvas
from inference.sketch_world.drawings import BACKDROPS
from inference.sketch_world.object_catalog import BACKGROUNDS, COLOURS, KINDS
from inference.sketch_world.perception import perceive, perceive_cached
from inference.sketch_world.renderer import Flaws, background, render, sprite
from inference.sketch_world.scene import Scene, Thing, make_cells
from schemas import BadImageError, FoundryError
from warehouse import EncodedImage

_CELL = 32
SCENE = Scene("meadow", make_cells([(0, "house", "red"), (8, "cat", "orange")]))
THINGS = [Thing(kind.name, colour) for kind in KINDS.values() for colour in kind.colours]


@cache
def backdrop(name: str) -> Image.Image:
    """The middle cell of a background."""
    image = background(name, 3 * _CELL)
    return image.crop((_CELL, _CELL, 2 * _CELL, 2 * _CELL)).convert("RGBA")


@lru_cache(1000)
def cell(kind: str, colour: str, surface: str = "paper") -> np.ndarray:
    """A thing in the middle cell of a background, as float pixels."""
    image = backdrop(surface).copy()
    if kind:
        image.alpha_composite(sprite(Thing(kind, colour), _CELL))
    return np.asarray(image.convert("RGB"), dtype=float)


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Mean absolute difference per pixel and channel, 0-255."""
    return float(np.abs(a - b).mean())


def test_things_keep_a_margin_of_four_percent():
    for kind in KINDS:
        for size in [32, 100]:
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


def random_scene(rng: np.random.Generator) -> Scene:
    cells = rng.permutation(9)[: rng.integers(0, 8)]
    chosen = {int(cell): THINGS[rng.integers(len(THINGS))] for cell in cells}
    return Scene(BACKGROUNDS[rng.integers(len(BACKGROUNDS))], chosen)


def full_scenes(background: str, shift: int) -> list[Scene]:
    """Every thing once, nine to a scene, moved along the cells by `shift`."""
    groups = [THINGS[start : start + 9] for start in range(0, len(THINGS), 9)]
    return [Scene(background, {(i + shift) % 9: t for i, t in enumerate(g)}) for g in groups]


def assert_perceived_exactly(scene: Scene, size: int) -> None:
    perception = perceive(render(scene, size))
    assert perception.scene == scene
    assert not (perception.crooked or perception.blemished)


def test_things_are_perceived_on_backgrounds():
    """Every thing on some; in every cell, on a third of them each, below."""
    for number, surface in enumerate(BACKGROUNDS):
        for scene in full_scenes(surface, number)[number % 4 :: 4]:
            assert_perceived_exactly(scene, 96)


@pytest.mark.long
def test_every_thing_is_perceived_in_every_cell():
    for number, surface in enumerate(BACKGROUNDS):
        for shift in range(number % 3, 9, 3):
            for scene in full_scenes(surface, shift):
                assert_perceived_exactly(scene, 192)


def test_flaws_are_perceived_and_hide_no_things():
    for size in [96, 192, 384]:
        rng = np.random.default_rng(size)
        for seed in range(6):
            scene = random_scene(rng)
            crooked = frozenset(sorted(scene.cells)[:1])
            blemished = frozenset({int(rng.integers(9))}) - crooked
            perception = perceive(render(scene, size, Flaws(crooked, blemished, seed)))
            assert (perception.scene, perception.crooked, perception.blemished) == (
                scene,
                crooked,
                blemished,
            )


def test_other_sizes_show_the_same_scene():
    for size in [150, 288, 576]:
        rng = np.random.default_rng(size)
        for _ in range(3):
            scene = random_scene(rng)
            assert perceive(render(scene, size)).scene == scene


def test_a_blank_image_is_an_empty_sheet_of_paper():
    for size in ((96, 96), (1024, 768)):
        assert perceive(Image.new("RGB", size, "white")).scene == Scene("paper")


def test_images_from_other_sources_get_low_confidence():
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 255, (200, 311, 3), dtype=np.uint8)
    assert perceive(Image.fromarray(noise)).confidence < 0.5
    assert perceive(render(random_scene(rng))).confidence > 0.99


def test_a_broken_image_raises():
    with pytest.raises(BadImageError):
        perceive_cached(EncodedImage(b"not an image"))
