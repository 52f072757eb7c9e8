import pytest

from inference.roles import Score, Scorer
from inference.sketch_world.renderer import Flaws, render
from inference.sketch_world.scene import Scene, Thing, things
from inference.sketch_world.scorer import SketchScorer
from inference.sketch_world.settings import SketchSettings
from warehouse import EncodedImage

VILLAGE = Scene("meadow", things([(6, "house", "red"), (4, "cat", "orange"), (2, "sun", "yellow")]))
PAINTED = VILLAGE.with_cell(6, Thing("house", "blue"))
GOAL = "Paint the house blue."


def graded(after: Scene, goal: str = GOAL, flaws: Flaws | None = None) -> Score:
    before = EncodedImage.of(render(VILLAGE, 96))
    return SketchScorer().grade(before, EncodedImage.of(render(after, 96, flaws)), goal)


async def test_a_right_picture_gets_full_marks():
    scorer = SketchScorer()
    assert isinstance(scorer, Scorer)
    before, after = (EncodedImage.of(render(scene, 192)) for scene in (VILLAGE, PAINTED))
    assert await scorer.score(before, after, GOAL) == Score(10, 10, 10, 10)


def test_partial_credit_for_partial_success():
    unchanged = graded(VILLAGE)
    assert 0 < unchanged.edit_success < 10
    gone = graded(VILLAGE.with_cell(6, None))
    assert gone.edit_success < unchanged.edit_success
    two = graded(PAINTED, "Paint the house blue and remove the cat.")
    assert two.edit_success == pytest.approx(5)


def test_other_changes_cost_over_edit_only():
    one = graded(PAINTED.with_cell(2, None))
    two = graded(PAINTED.with_cell(2, None).with_cell(4, None))
    background = graded(Scene("beach", PAINTED.cells))
    assert one.edit_success == two.edit_success == background.edit_success == 10
    assert 10 > one.over_edit > two.over_edit > 0
    assert background.over_edit < one.over_edit


def test_a_thing_in_the_wrong_place_loses_both_ways():
    score = graded(VILLAGE.with_cell(0, Thing("dog", "brown")), "Add a dog at the bottom right.")
    assert 0 < score.edit_success < 5
    assert score.over_edit < 10


def test_flaws_cost_quality_only():
    crooked = graded(PAINTED, flaws=Flaws(crooked=[4]))
    scribbled = graded(PAINTED, flaws=Flaws(blemished=[0]))
    assert (crooked.semantics, crooked.naturalness, crooked.artifacts) == (10, 6, 10)
    assert (scribbled.semantics, scribbled.naturalness, scribbled.artifacts) == (10, 10, 6)


@pytest.mark.parametrize("cell", [1, 3, 5, 7])
def test_any_place_that_fulfils_the_goal_is_fine(cell):
    after = VILLAGE.with_cell(cell, Thing("dog", "brown"))
    assert graded(after, "Add a dog next to the cat.") == Score(10, 10, 10, 10)


def test_a_first_picture_is_graded_from_scratch():
    goal = "Draw a meadow with a red house at the bottom left and a sun."
    scene = Scene("meadow", things([(6, "house", "red"), (1, "sun", "yellow")]))
    scorer = SketchScorer()
    assert scorer.grade(None, EncodedImage.of(render(scene)), goal) == Score(10, 10, 10, 10)
    missing = scorer.grade(None, EncodedImage.of(render(scene.with_cell(1, None))), goal)
    assert missing.edit_success == pytest.approx(20 / 3, abs=0.01)
    stray = scorer.grade(
        None, EncodedImage.of(render(scene.with_cell(8, Thing("cat", "pink")))), goal
    )
    assert (stray.edit_success, stray.over_edit) == (10, 7)


def test_what_is_not_understood_or_impossible_earns_nothing():
    assert graded(VILLAGE, "Sing a song.").edit_success == 0
    assert graded(VILLAGE, "Add a blue sun at the top left.").edit_success == 0


def test_noise_is_a_setting_and_repeatable():
    noisy = SketchScorer(SketchSettings(scorer_noise=1.0))
    before, after = (EncodedImage.of(render(scene, 96)) for scene in (VILLAGE, VILLAGE))
    first = noisy.grade(before, after, GOAL)
    assert first == noisy.grade(before, after, GOAL)
    assert first != SketchScorer().grade(before, after, GOAL)
    assert all(0 <= grade <= 10 for grade in vars(first).values())
    assert noisy.model != SketchScorer().model
