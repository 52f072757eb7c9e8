"""The critic's verdicts and the scorer's grades of the same images."""

import pytest

from inference.backends.sketch.backend import SketchCritic, SketchScorer
from inference.roles import Critic, Score, Scorer, Verdict
from inference.sketch_world.critic import judge
from inference.sketch_world.renderer import Flaws, render
from inference.sketch_world.scene import Scene, Thing, make_cells
from inference.sketch_world.scorer import grade
from inference.sketch_world.settings import CriticRates, SketchSettings
from warehouse import EncodedImage

VILLAGE = Scene(
    "meadow", make_cells([(6, "house", "red"), (4, "cat", "orange"), (2, "sun", "yellow")])
)
PAINTED = VILLAGE.with_cell(6, Thing("house", "blue"))
DOG = Thing("dog", "brown")
GOAL = "Paint the house blue."
EXACT = SketchSettings(critic=CriticRates(error=0, vague=0, repeat=0))


def image_of(scene: Scene, flaws: Flaws | None = None) -> EncodedImage:
    return EncodedImage.of(render(scene, 96, flaws))


def verdict_on(
    after: Scene,
    goal: str = GOAL,
    settings: SketchSettings = EXACT,
    prompt: str = "",
    flaws: Flaws | None = None,
) -> Verdict:
    return judge(image_of(VILLAGE), image_of(after, flaws), goal, prompt, settings.critic)


def score_of(after: Scene, goal: str = GOAL, flaws: Flaws | None = None) -> Score:
    return grade(image_of(VILLAGE), image_of(after, flaws), goal)


async def test_a_correct_image_is_accepted_and_gets_full_marks():
    critic, scorer = SketchCritic(EXACT), SketchScorer()
    assert isinstance(critic, Critic) and isinstance(scorer, Scorer)
    before, after = (EncodedImage.of(render(scene, 192)) for scene in (VILLAGE, PAINTED))
    assert await scorer.score(before, after, GOAL) == Score(10, 10, 10, 10)
    verdict = await critic.judge(before, after, GOAL, "")
    assert verdict.accepted
    assert verdict.refined_prompt == ""
    assert verdict.reasoning.splitlines() == [
        "Asked for: Paint the house blue.",
        "Background: want meadow, see meadow, right.",
        "Top right: want yellow sun, see yellow sun, right.",
        "Center: want orange cat, see orange cat, right.",
        "Bottom left: want blue house, see blue house, right.",
        "The step succeeded.",
    ]


def test_any_cell_that_fulfils_the_goal_is_right():
    goal = "Add a dog next to the cat."
    for cell in (1, 3, 5, 7):
        after = VILLAGE.with_cell(cell, DOG)
        assert verdict_on(after, goal).accepted
        assert score_of(after, goal) == Score(10, 10, 10, 10)
    assert not verdict_on(VILLAGE.with_cell(0, DOG), goal).accepted


def test_an_instruction_not_understood_or_impossible_is_rejected():
    verdict = verdict_on(VILLAGE, "Sing a song.")
    assert (verdict.accepted, verdict.refined_prompt) == (False, "Sing a song.")
    assert score_of(VILLAGE, "Sing a song.").edit_success == 0
    assert score_of(VILLAGE, "Add a blue sun at the top left.").edit_success == 0


def test_a_wrong_image_gets_an_explanation_and_an_exact_prompt():
    verdict = verdict_on(VILLAGE.with_cell(6, Thing("house", "green")))
    assert not verdict.accepted
    assert "Bottom left: want blue house, see green house, wrong." in verdict.reasoning
    assert verdict.refined_prompt == (
        "Paint the red house at the bottom left blue. Keep everything else unchanged."
    )


def test_every_defect_is_named():
    for after, flaws, sentence in (
        (VILLAGE, None, "Bottom left: want blue house, see red house, wrong."),
        (PAINTED.with_cell(2, None), None, "Top right: want yellow sun, see nothing, wrong."),
        (Scene("beach", PAINTED.cells), None, "Background: want meadow, see beach, wrong."),
        (PAINTED, Flaws(blemished=[0]), "Top left: want nothing, see nothing, scribbled."),
        (PAINTED, Flaws(crooked=[4]), "Center: want orange cat, see orange cat, crooked."),
    ):
        verdict = verdict_on(after, flaws=flaws)
        assert not verdict.accepted
        assert sentence in verdict.reasoning.splitlines()
        assert verdict.refined_prompt


def test_a_first_image_is_judged_from_scratch():
    goal = "Draw a meadow with a red house at the bottom left."
    house = Scene("meadow", {6: Thing("house", "red")})
    stray = house.with_cell(0, Thing("cat", "pink"))
    white = EncodedImage.of(render(Scene("paper"), 96))
    for before in (None, white):
        assert judge(before, image_of(house), goal, "", EXACT.critic).accepted
        rejected = judge(before, image_of(stray), goal, "", EXACT.critic)
        assert rejected.refined_prompt == goal


def test_errors_go_both_ways_with_consistent_reasoning():
    wrong = SketchSettings(critic=CriticRates(error=1, vague=0, repeat=0))
    missed = verdict_on(VILLAGE, settings=wrong)
    assert missed.accepted
    assert "see blue house, right" in missed.reasoning
    imagined = verdict_on(PAINTED, settings=wrong)
    assert not imagined.accepted
    assert imagined.refined_prompt
    assert "wrong." in imagined.reasoning


def test_the_error_rate_is_as_configured():
    rates = CriticRates(error=0.2)
    before, after = image_of(VILLAGE), image_of(PAINTED)
    verdicts = [judge(before, after, GOAL, f"try {i}", rates) for i in range(500)]
    assert 0.14 < sum(not verdict.accepted for verdict in verdicts) / 500 < 0.26
    assert verdicts == [judge(before, after, GOAL, f"try {i}", rates) for i in range(500)]


def test_rewrites_vary_in_quality():
    lazy = SketchSettings(critic=CriticRates(error=0, vague=0, repeat=1))
    assert verdict_on(VILLAGE, settings=lazy).refined_prompt == GOAL
    assert verdict_on(VILLAGE, settings=lazy, prompt="Blue!").refined_prompt == "Blue!"
    vague = SketchSettings(critic=CriticRates(error=0, vague=1, repeat=0))
    goal = "Add a black dog at the top left."
    assert verdict_on(VILLAGE, goal, vague).refined_prompt.endswith(" Add a dog.")


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
    score = score_of(VILLAGE.with_cell(0, DOG), "Add a dog at the bottom right.")
    assert 0 < score.edit_success < 5
    assert score.over_edit < 10


def test_flaws_cost_quality_only():
    crooked = score_of(PAINTED, flaws=Flaws(crooked=[4]))
    scribbled = score_of(PAINTED, flaws=Flaws(blemished=[0]))
    assert (crooked.semantics, crooked.naturalness, crooked.artifacts) == (10, 6, 10)
    assert (scribbled.semantics, scribbled.naturalness, scribbled.artifacts) == (10, 10, 6)


def test_a_first_image_is_graded_from_scratch():
    goal = "Draw a meadow with a red house at the bottom left and a sun."
    scene = Scene("meadow", make_cells([(6, "house", "red"), (1, "sun", "yellow")]))
    assert grade(None, image_of(scene), goal) == Score(10, 10, 10, 10)
    missing = grade(None, image_of(scene.with_cell(1, None)), goal)
    assert missing.edit_success == pytest.approx(20 / 3, abs=0.01)
    stray = grade(None, image_of(scene.with_cell(8, Thing("cat", "pink"))), goal)
    assert (stray.edit_success, stray.over_edit) == (10, 7)


def test_noise_is_configurable_and_deterministic():
    before = after = image_of(VILLAGE)
    first = grade(before, after, GOAL, noise=1.0)
    assert first == grade(before, after, GOAL, noise=1.0)
    assert first != grade(before, after, GOAL)
    assert all(0 <= value <= 10 for value in vars(first).values())
    assert SketchScorer(SketchSettings(scorer_noise=1.0)).model != SketchScorer().model
