import pytest

from inference.backends.sketch.agents import SketchScorer
from inference.roles import Score, Scorer
from inference.sketch_world.renderer import Flaws, render
from inference.sketch_world.scene import Scene, Thing, make_cells
from inference.sketch_world.scorer import grade
from inference.sketch_world.settings import SketchSettings
from warehouse import EncodedImage

VILLAGE = Scene(
    "meadow", make_cells([(6, "house", "red"), (4, "cat", "orange"), (2, "sun", "yellow")])
)
PAINTED = VILLAGE.with_cell(6, Thing("house", "blue"))
GOAL = "Paint the house blue."


def score_of(after: Scene, goal: str = GOAL, flaws: Flaws | None = None) -> Score:
    before = EncodedImage.of(render(VILLAGE, 96))
    return grade(before, EncodedImage.of(render(after, 96, flaws)), goal)


async def test_a_correct_image_gets_full_marks():
    scorer = SketchScorer()
    assert isinstance(scorer, Scorer)
    before, after = (EncodedImage.of(render(scene, 192)) for scene in (VILLAGE, PAINTED))
    assert await scorer.score(before, after, GOAL) == Score(10, 10, 10, 10)


def test_partial_credit_for_partial_success():
    unchanged = score_of(VILLAGE)
    assert 0 < unchanged.edit_success < 10
    gone = score_of(VILLAGE.with_cell(6, None))
    assert gone.edit_success < unchanged.edit_success
    two = score_of(PAINTED, "Paint the house blue and remove the cat.")
    assert two.edit_success == pytest.approx(5)


def test_other_changes_cost_over_edit_only():
    one = score_of(PAINTED.with_cell(2, None))
    two = score_of(PAINTED.with_cell(2, None).with_cell(4, None))
    background = score_of(Scene("beach", PAINTED.cells))
    assert one.edit_success == two.edit_success == background.edit_success == 10
    assert 10 > one.over_edit > two.over_edit > 0
    assert background.over_edit < one.over_edit


def test_a_thing_in_the_wrong_place_loses_both_ways():
    score = score_of(VILLAGE.with_cell(0, Thing("dog", "brown")), "Add a dog at the bottom right.")
    assert 0 < score.edit_success < 5
    assert score.over_edit < 10


def test_flaws_cost_quality_only():
    crooked = score_of(PAINTED, flaws=Flaws(crooked=[4]))
    scribbled = score_of(PAINTED, flaws=Flaws(blemished=[0]))
    assert (crooked.semantics, crooked.naturalness, crooked.artifacts) == (10, 6, 10)
    assert (scribbled.semantics, scribbled.naturalness, scribbled.artifacts) == (10, 10, 6)


def test_any_cell_that_fulfils_the_goal_gets_full_marks():
    for cell in [1, 3, 5, 7]:
        after = VILLAGE.with_cell(cell, Thing("dog", "brown"))
        assert score_of(after, "Add a dog next to the cat.") == Score(10, 10, 10, 10)


def test_a_first_image_is_graded_from_scratch():
    goal = "Draw a meadow with a red house at the bottom left and a sun."
    scene = Scene("meadow", make_cells([(6, "house", "red"), (1, "sun", "yellow")]))
    assert grade(None, EncodedImage.of(render(scene)), goal) == Score(10, 10, 10, 10)
    missing = grade(None, EncodedImage.of(render(scene.with_cell(1, None))), goal)
    assert missing.edit_success == pytest.approx(20 / 3, abs=0.01)
    stray = grade(None, EncodedImage.of(render(scene.with_cell(8, Thing("cat", "pink")))), goal)
    assert (stray.edit_success, stray.over_edit) == (10, 7)


def test_an_instruction_not_understood_or_impossible_scores_zero():
    assert score_of(VILLAGE, "Sing a song.").edit_success == 0
    assert score_of(VILLAGE, "Add a blue sun at the top left.").edit_success == 0


def test_noise_is_configurable_and_deterministic():
    before, after = (EncodedImage.of(render(scene, 96)) for scene in (VILLAGE, VILLAGE))
    first = grade(before, after, GOAL, noise=1.0)
    assert first == grade(before, after, GOAL, noise=1.0)
    assert first != grade(before, after, GOAL)
    assert all(0 <= value <= 10 for value in vars(first).values())
    assert SketchScorer(SketchSettings(scorer_noise=1.0)).model != SketchScorer().model
