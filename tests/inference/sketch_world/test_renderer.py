import numpy as np
import pytest

from inference.sketch_world.renderer import Flaws, render
from inference.sketch_world.scene import Scene, Thing, make_cells
from schemas import FoundryError

SCENE = Scene("meadow", make_cells([(0, "house", "red"), (8, "cat", "orange")]))


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
