import numpy as np
import pytest
from PIL import Image

from inference.sketch_world.object_catalog import BACKGROUNDS, KINDS
from inference.sketch_world.perception import perceive, perceive_cached
from inference.sketch_world.renderer import Flaws, render
from inference.sketch_world.scene import Scene, Thing
from schemas import BadImageError
from warehouse import EncodedImage

THINGS = [Thing(kind.name, colour) for kind in KINDS.values() for colour in kind.colours]


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
    for number, background in enumerate(BACKGROUNDS):
        for scene in full_scenes(background, number)[number % 4 :: 4]:
            assert_perceived_exactly(scene, 96)


@pytest.mark.long
def test_every_thing_is_perceived_in_every_cell():
    for number, background in enumerate(BACKGROUNDS):
        for shift in range(number % 3, 9, 3):
            for scene in full_scenes(background, shift):
                assert_perceived_exactly(scene, 192)


def test_flaws_are_perceived_and_hide_no_things():
    for size in [96, 192, 384]:
        rng = np.random.default_rng(size)
        for seed in range(12):
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
        for _ in range(6):
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
