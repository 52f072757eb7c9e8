import pytest

from inference.backends.sketch.backend import SketchGenerator
from inference.roles import Generator
from inference.sketch_world.generator import draw
from inference.sketch_world.perception import perceive_cached
from inference.sketch_world.renderer import render
from inference.sketch_world.scene import Scene, Thing, make_cells
from inference.sketch_world.settings import (
    CollateralRates,
    ColourRates,
    MistakeRates,
    PlaceRates,
    SketchSettings,
)
from tools.error_rates import WORDINGS, measure
from warehouse import EncodedImage

CAREFUL = SketchSettings(
    mistakes=MistakeRates(
        place=PlaceRates(exact=0, relative=0, open=0),
        colour=ColourRates(named=0, implied=0),
        collateral=CollateralRates(kept=0, unasked=0),
        kind=0,
        nothing=0,
        blemish=0,
        crooked=0,
    )
)
VILLAGE = Scene("meadow", make_cells([(6, "house", "red"), (4, "cat", "orange")]))
BEFORE = EncodedImage.of(render(VILLAGE))


def with_rates(**rates: object) -> SketchSettings:
    return SketchSettings(mistakes=CAREFUL.mistakes.model_copy(update=rates))


def drawn_scene(prompt: str, settings: SketchSettings = CAREFUL, seed: int = 0) -> Scene:
    return perceive_cached(draw(prompt, [BEFORE], seed, settings)).scene


async def test_a_prompt_edits_the_last_image():
    generator = SketchGenerator(CAREFUL)
    assert isinstance(generator, Generator)
    other = EncodedImage.of(render(Scene("beach")))
    image = await generator.generate("Paint the house blue.", [other, BEFORE], seed=1)
    assert perceive_cached(image).scene == VILLAGE.with_cell(6, Thing("house", "blue"))
    assert image.image.size == (192, 192)


async def test_without_images_it_draws_from_scratch():
    image = await SketchGenerator(CAREFUL).generate("Draw a beach with a red ball.", [], seed=1)
    assert perceive_cached(image).scene.background == "beach"
    assert list(perceive_cached(image).scene.cells.values()) == [Thing("ball", "red")]


def test_images_are_deterministic_and_vary_by_seed():
    prompt = "Add a dog."
    images = {draw(prompt, [BEFORE], seed) for seed in range(20)}
    assert images == {draw(prompt, [BEFORE], seed) for seed in range(20)}
    assert len(images) > 5


def test_a_prompt_that_is_not_understood_changes_nothing():
    assert drawn_scene("Make it better!") == VILLAGE
    assert perceive_cached(draw("Make it better!", [], 0)).scene == Scene("paper")


def test_each_rate_causes_its_own_mistake():
    prompt = "Add a brown dog at the top left."
    right = VILLAGE.with_cell(0, Thing("dog", "brown"))
    assert drawn_scene(prompt) == right
    assert drawn_scene(prompt, with_rates(nothing=1)) == VILLAGE
    assert drawn_scene(prompt, with_rates(kind=1)).cells[0].kind != "dog"
    wrong_colour = drawn_scene(prompt, with_rates(colour=ColourRates(named=1))).cells[0]
    assert (wrong_colour.kind, wrong_colour.colour == "brown") == ("dog", False)
    misplaced = drawn_scene(prompt, with_rates(place=PlaceRates(exact=1))).cells
    assert 0 not in misplaced
    assert Thing("dog", "brown") in misplaced.values()
    damaged = drawn_scene(prompt, with_rates(collateral=CollateralRates(kept=0, unasked=1)))
    assert damaged.cells[0] == Thing("dog", "brown")
    assert damaged != right
    assert perceive_cached(draw(prompt, [BEFORE], 0, with_rates(crooked=1))).crooked
    assert perceive_cached(draw(prompt, [BEFORE], 0, with_rates(blemish=1))).blemished


def test_the_model_name_depends_on_the_settings():
    names = {SketchGenerator(settings).model for settings in (CAREFUL, SketchSettings())}
    assert len(names) == 2
    assert SketchGenerator().model == SketchGenerator(SketchSettings(scorer_noise=1)).model


@pytest.fixture(scope="module")
def rates():
    small = SketchSettings(picture_size=96)
    return {wording.name: measure(wording, 120, small) for wording in WORDINGS}


def test_an_explicit_prompt_succeeds_more_often_than_a_vague_one(rates):
    assert rates["explicit"].success > rates["vague"].success + 0.25
    assert rates["explicit recolouring"].success > rates["vague recolouring"].success + 0.15
    explicit = rates["explicit picture of three things"].success
    assert explicit > rates["vague picture of three things"].success + 0.3
    assert rates["explicit"].success > 0.83
    assert 0.4 < rates["vague"].success < 0.65


def test_each_part_of_the_wording_reduces_its_own_mistake(rates):
    explicit = rates["explicit"]
    assert explicit.wrong_colour + 0.08 < rates["colour implied"].wrong_colour
    assert explicit.misplaced + 0.02 < rates["relative place"].misplaced
    assert rates["relative place"].misplaced + 0.05 < rates["no place"].misplaced
    assert explicit.damage + 0.07 < rates["no keep clause"].damage


def test_more_edits_are_harder(rates):
    assert rates["three explicit edits"].success < rates["explicit"].success
