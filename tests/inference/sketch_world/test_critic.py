from inference.backends.sketch.agents import SketchCritic
from inference.roles import Critic
from inference.sketch_world.critic import judge
from inference.sketch_world.renderer import Flaws, render
from inference.sketch_world.scene import Scene, Thing, make_cells
from inference.sketch_world.settings import CriticRates, SketchSettings
from warehouse import EncodedImage

VILLAGE = Scene(
    "meadow", make_cells([(6, "house", "red"), (4, "cat", "orange"), (2, "sun", "yellow")])
)
PAINTED = VILLAGE.with_cell(6, Thing("house", "blue"))
GOAL = "Paint the house blue."
EXACT = SketchSettings(critic=CriticRates(error=0, vague=0, repeat=0))


def image_of(scene: Scene, flaws: Flaws | None = None) -> EncodedImage:
    return EncodedImage.of(render(scene, 96, flaws))


def verdict_on(
    after: EncodedImage, goal: str = GOAL, settings: SketchSettings = EXACT, prompt: str = ""
):
    return judge(image_of(VILLAGE), after, goal, prompt, settings.critic)


async def test_a_correct_image_is_accepted():
    critic = SketchCritic(EXACT)
    assert isinstance(critic, Critic)
    verdict = await critic.judge(image_of(VILLAGE), image_of(PAINTED), GOAL, "")
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


def test_a_wrong_image_gets_an_explanation_and_an_exact_prompt():
    verdict = verdict_on(image_of(VILLAGE.with_cell(6, Thing("house", "green"))))
    assert not verdict.accepted
    assert "Bottom left: want blue house, see green house, wrong." in verdict.reasoning
    assert verdict.refined_prompt == (
        "Paint the red house at the bottom left blue. Keep everything else unchanged."
    )


def test_every_defect_is_named():
    cases = [
        (image_of(VILLAGE), "Bottom left: want blue house, see red house, wrong."),
        (image_of(PAINTED.with_cell(2, None)), "Top right: want yellow sun, see nothing, wrong."),
        (image_of(Scene("beach", PAINTED.cells)), "Background: want meadow, see beach, wrong."),
        (
            image_of(PAINTED, Flaws(blemished=[0])),
            "Top left: want nothing, see nothing, scribbled.",
        ),
        (
            image_of(PAINTED, Flaws(crooked=[4])),
            "Center: want orange cat, see orange cat, crooked.",
        ),
    ]
    for after, sentence in cases:
        verdict = verdict_on(after)
        assert not verdict.accepted
        assert sentence in verdict.reasoning.splitlines()
        assert verdict.refined_prompt


def test_any_cell_that_fulfils_the_goal_is_accepted():
    for cell in (1, 3, 5, 7):
        after = image_of(VILLAGE.with_cell(cell, Thing("dog", "brown")))
        assert verdict_on(after, "Add a dog next to the cat.").accepted
    elsewhere = image_of(VILLAGE.with_cell(0, Thing("dog", "brown")))
    assert not verdict_on(elsewhere, "Add a dog next to the cat.").accepted


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
    missed = verdict_on(image_of(VILLAGE), settings=wrong)
    assert missed.accepted
    assert "see blue house, right" in missed.reasoning
    imagined = verdict_on(image_of(PAINTED), settings=wrong)
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
    assert verdict_on(image_of(VILLAGE), settings=lazy).refined_prompt == GOAL
    assert verdict_on(image_of(VILLAGE), settings=lazy, prompt="Blue!").refined_prompt == "Blue!"
    vague = SketchSettings(critic=CriticRates(error=0, vague=1, repeat=0))
    goal = "Add a black dog at the top left."
    assert verdict_on(image_of(VILLAGE), goal, vague).refined_prompt.endswith(" Add a dog.")


def test_an_instruction_that_is_not_understood_is_rejected():
    verdict = verdict_on(image_of(VILLAGE), "Sing a song.")
    assert not verdict.accepted
    assert verdict.refined_prompt == "Sing a song."
