import pytest

from inference.roles import Generator
from inference.sketch_world.error_rates import WORDINGS, measure
from inference.sketch_world.generator import SketchGenerator
from inference.sketch_world.perception import perceive_cached
from inference.sketch_world.renderer import render
from inference.sketch_world.scene import Scene, Thing, things
from inference.sketch_world.settings import (
    CollateralRates,
    ColourRates,
    MistakeRates,
    PlaceRates,
    SketchSettings,
)
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
VILLAGE = Scene("meadow", things([(6, "house", "red"), (4, "cat", "orange")]))
BEFORE = EncodedImage.of(render(VILLAGE))


def with_rates(**rates: object) -> SketchSettings:
    return SketchSettings(mistakes=CAREFUL.mistakes.model_copy(update=rates))


def drawn(prompt: str, settings: SketchSettings = CAREFUL, seed: int = 0) -> Scene:
    return perceive_cached(SketchGenerator(settings).draw(prompt, [BEFORE], seed)).scene


async def test_a_prompt_is_drawn_on_the_last_picture():
    generator = SketchGenerator(CAREFUL)
    assert isinstance(generator, Generator)
    other = EncodedImage.of(render(Scene("beach")))
    picture = await generator.generate("Paint the house blue.", [other, BEFORE], seed=1)
    assert perceive_cached(picture).scene == VILLAGE.with_cell(6, Thing("house", "blue"))
    assert picture.image.size == (192, 192)


async def test_without_pictures_it_draws_from_scratch():
    picture = await SketchGenerator(CAREFUL).generate("Draw a beach with a red ball.", [], seed=1)
    assert perceive_cached(picture).scene.background == "beach"
    assert list(perceive_cached(picture).scene.cells.values()) == [Thing("ball", "red")]


def test_the_same_request_gives_the_same_picture_and_seeds_differ():
    prompt = "Add a dog."
    pictures = {SketchGenerator().draw(prompt, [BEFORE], seed) for seed in range(20)}
    assert pictures == {SketchGenerator().draw(prompt, [BEFORE], seed) for seed in range(20)}
    assert len(pictures) > 5


def test_what_is_not_understood_is_not_drawn():
    assert drawn("Make it better!") == VILLAGE
    assert perceive_cached(SketchGenerator().draw("Make it better!", [], 0)).scene == Scene("paper")


def test_each_mistake_happens_in_its_own_way():
    prompt = "Add a brown dog at the top left."
    right = VILLAGE.with_cell(0, Thing("dog", "brown"))
    assert drawn(prompt) == right
    assert drawn(prompt, with_rates(nothing=1)) == VILLAGE
    assert drawn(prompt, with_rates(kind=1)).cells[0].kind != "dog"
    wrong_colour = drawn(prompt, with_rates(colour=ColourRates(named=1))).cells[0]
    assert (wrong_colour.kind, wrong_colour.colour == "brown") == ("dog", False)
    misplaced = drawn(prompt, with_rates(place=PlaceRates(exact=1))).cells
    assert 0 not in misplaced
    assert Thing("dog", "brown") in misplaced.values()
    damaged = drawn(prompt, with_rates(collateral=CollateralRates(kept=0, unasked=1)))
    assert damaged.cells[0] == Thing("dog", "brown")
    assert damaged != right


def test_bad_drawing_shows():
    prompt = "Add a brown dog at the top left."
    crooked = perceive_cached(SketchGenerator(with_rates(crooked=1)).draw(prompt, [BEFORE], 0))
    scribbled = perceive_cached(SketchGenerator(with_rates(blemish=1)).draw(prompt, [BEFORE], 0))
    assert crooked.crooked
    assert scribbled.blemished


def test_the_model_name_tells_the_settings_apart():
    names = {SketchGenerator(settings).model for settings in (CAREFUL, SketchSettings())}
    assert len(names) == 2
    assert SketchGenerator().model == SketchGenerator(SketchSettings(scorer_noise=1)).model


@pytest.fixture(scope="module")
def measured():
    small = SketchSettings(picture_size=96)
    return {wording.name: measure(wording, 300, small) for wording in WORDINGS}


def test_an_explicit_prompt_succeeds_more_often_than_a_vague_one(measured):
    assert measured["explicit"].success > measured["vague"].success + 0.25
    assert measured["explicit recolouring"].success > measured["vague recolouring"].success + 0.15
    explicit = measured["explicit picture of three things"].success
    assert explicit > measured["vague picture of three things"].success + 0.3
    assert measured["explicit"].success > 0.83
    assert 0.4 < measured["vague"].success < 0.65


def test_each_part_of_the_wording_makes_its_own_mistake_rarer(measured):
    explicit = measured["explicit"]
    assert explicit.wrong_colour + 0.08 < measured["colour implied"].wrong_colour
    assert explicit.misplaced + 0.02 < measured["relative place"].misplaced
    assert measured["relative place"].misplaced + 0.05 < measured["no place"].misplaced
    assert explicit.damage + 0.07 < measured["no keep clause"].damage


def test_more_edits_are_harder(measured):
    assert measured["three explicit edits"].success < measured["explicit"].success
