"""The loop's rules, and the defects of the reference implementation that it must not have.

`defect_N` in a name: number N of the upstream defects in `shared/facts/upstream_defects.md`.
"""

from inference.calls.ask import ModelCalls, request_hash
from inference.events import (
    AttemptJudged,
    ImageGenerated,
    StepAccepted,
    StepExhausted,
    StepStarted,
    TextEmitted,
    TrajectoryFinished,
)
from inference.loop import Loop
from inference.roles import Plan, PlanStep, UnusableAnswerError
from inference.settings import Limits, LoopSettings
from inference.shard import plan_shard, run_shard
from tests.inference.scripted_world import (
    ACCEPT,
    SHARD,
    ScriptedCritic,
    ScriptedGenerator,
    ScriptedPlanner,
    ScriptedScorer,
    plan,
    plan_rows_for,
    prompt_row,
    reject,
    roles,
    tiny_image,
)
from warehouse import Home

LIMITS = Limits(failure_share=1.0, backoff_seconds=0)


async def run(home, backends, *prompts, images=(), **settings):
    """Run the loop over one plan; the trajectory and attempts."""
    prompt = prompt_row(images=[home.images.put(image) for image in images])
    result = await run_shard(
        [prompt],
        plan_rows_for(prompt, *prompts),
        backends,
        home,
        SHARD,
        LoopSettings(**settings),
        LIMITS,
    )
    return result.trajectories[0], result.attempts


async def test_accepted_step_has_one_attempt(home):
    verdict = type(ACCEPT)(True, "but with a hat", "fine")
    backends = roles(critic=ScriptedCritic(verdicts={"Draw a cat": [verdict]}))
    trajectory, attempts = await run(home, backends, "Draw a cat")
    assert (trajectory.status, trajectory.steps, trajectory.attempts) == ("complete", 1, 1)
    (attempt,) = attempts
    assert attempt.accepted and attempt.chosen and attempt.reasoning == "fine"
    assert attempt.refined_prompt == "", "that of an accepting critic is dropped"
    assert home.images.exists(attempt.image)


async def test_attempts_of_a_step_draw_the_refined_prompts_from_the_same_source(home):
    """The critic gets the goal always, and no rewritten prompt the first time."""
    critic = ScriptedCritic(verdicts={"Add a hat": [reject("Add a RED hat"), reject("A HAT!")]})
    generator = ScriptedGenerator()
    backends = roles(critic=critic, generator=generator)
    _, attempts = await run(home, backends, "Draw a cat", "Add a hat", "Add a sun")
    cat, first, second, third, _ = (a.image for a in attempts)
    prompts = ["Draw a cat", "Add a hat", "Add a RED hat", "A HAT!", "Add a sun"]
    assert [a.prompt for a in attempts] == prompts
    assert [a.refined_prompt for a in attempts] == ["", "Add a RED hat", "A HAT!", "", ""]
    assert [a.iteration for a in attempts] == [0, 0, 1, 2, 0]
    assert [a.source_image for a in attempts] == [None, cat, cat, cat, third]
    assert [call[:2] for call in generator.calls] == [
        (a.prompt, (a.source_image,) if a.source_image else ()) for a in attempts
    ]
    assert [a.image for a in attempts] == [tiny_image(*call).sha256 for call in generator.calls]
    assert critic.calls[1:4] == [
        (cat, first, "Add a hat", ""),
        (cat, second, "Add a hat", "Add a RED hat"),
        (cat, third, "Add a hat", "A HAT!"),
    ]


async def test_empty_refinement_falls_back_to_the_previous_prompt(home):
    critic = ScriptedCritic(verdicts={"Draw a cat": [reject("A FAT cat"), reject(" \n")]})
    _, attempts = await run(home, roles(critic=critic), "Draw a cat")
    assert [a.prompt for a in attempts] == ["Draw a cat", "A FAT cat", "A FAT cat"]
    assert len({a.seed for a in attempts}) == 3


async def test_seeds_differ_between_retries_and_steps_and_follow_the_setting(tmp_path):
    def rejecting():
        rejected = [reject("again")] * 4
        return roles(critic=ScriptedCritic(verdicts={"a": rejected, "b": rejected}))

    seeds, images = [], []
    for name, seed in {"first": 1, "again": 1, "other": 2}.items():
        backends = rejecting()
        _, attempts = await run(Home(tmp_path / name), backends, "a", "b", seed=seed)
        seeds.append([attempt.seed for attempt in attempts])
        images.append([attempt.image for attempt in attempts])
        assert len(set(seeds[-1])) == 10 and all(0 <= each < 2**31 for each in seeds[-1])
        assert seeds[-1] == [call[2] for call in backends.generator.calls]
    assert seeds[0] == seeds[1] != seeds[2]
    assert images[0] == images[1] != images[2]


async def test_defect_3_t_max_reaches_the_loop(tmp_path):
    """The critic judges the last attempt, too."""
    for t_max in (1, 3, 5):
        critic = ScriptedCritic(verdicts={"a": [reject(f"r{n}") for n in range(9)]})
        home = Home(tmp_path / str(t_max))
        trajectory, attempts = await run(home, roles(critic=critic), "a", t_max=t_max)
        assert len(attempts) == len(critic.calls) == trajectory.t_max == t_max
        last = attempts[-1]
        assert (last.accepted, last.chosen, last.refined_prompt) == (False, True, f"r{t_max - 1}")


async def test_defaults_are_t_max_5_and_the_last_image(home):
    critic = ScriptedCritic(verdicts={"a": [reject("again")] * 9})
    generator = ScriptedGenerator()
    trajectory, attempts = await run(home, roles(critic=critic, generator=generator), "a", "b")
    assert (trajectory.status, trajectory.on_exhausted) == ("exhausted", "last")
    assert [a.chosen for a in attempts] == [False, False, False, False, True, True]
    assert generator.calls[-1][1] == (attempts[4].image,)
    assert (trajectory.steps, trajectory.attempts) == (2, 6)


async def test_on_exhausted_best_chooses_the_earliest_of_the_highest_scores(home):
    critic = ScriptedCritic(verdicts={"a": [reject("again")] * 4})
    scorer = ScriptedScorer(grades=[2.0, 7.0, 7.0, 3.0])
    generator = ScriptedGenerator()
    backends = roles(critic=critic, scorer=scorer, generator=generator)
    trajectory, attempts = await run(home, backends, "a", "b", t_max=4, on_exhausted="best")
    assert trajectory.status == "exhausted"
    assert [a.chosen for a in attempts] == [False, True, False, False, True]
    assert generator.calls[-1][1] == (attempts[1].image,)
    assert [call[2] for call in scorer.calls] == ["a"] * 4


async def test_on_exhausted_stop_ends_without_a_chosen_image(home):
    critic = ScriptedCritic(verdicts={"b": [reject("again")] * 2})
    backends = roles(critic=critic)
    trajectory, attempts = await run(home, backends, "a", "b", "c", t_max=2, on_exhausted="stop")
    assert (trajectory.status, trajectory.steps, trajectory.error) == ("stopped", 1, None)
    assert [a.chosen for a in attempts] == [True, False, False]


async def test_defect_5_text_only_step_draws_nothing(home):
    trajectory, attempts = await run(home, roles(), None, None)
    assert (trajectory.status, trajectory.attempts, attempts) == ("complete", 0, [])
    generator = ScriptedGenerator()
    trajectory, attempts = await run(home, roles(generator=generator), None, "a", None, "b", None)
    assert [a.step_number for a in attempts] == [2, 4]
    assert attempts[1].source_image == attempts[0].image
    assert len(generator.calls) == 2
    assert (trajectory.status, trajectory.steps) == ("complete", 5)


async def test_defect_10_planner_gets_all_input_images_and_generator_the_last(home):
    images = [tiny_image("input", number) for number in range(2)]
    prompt = prompt_row(images=[home.images.put(image) for image in images])
    planner, generator, critic = ScriptedPlanner(), ScriptedGenerator(), ScriptedCritic()
    backends = roles(planner=planner, generator=generator, critic=critic)
    plans = (await plan_shard([prompt], backends, home, LoopSettings(), LIMITS)).plans
    await run_shard([prompt], plans, backends, home, SHARD, LoopSettings(), LIMITS)
    assert planner.calls[0][1] == (images[0].sha256, images[1].sha256)
    assert generator.calls[0][1] == (images[1].sha256,)
    assert critic.calls[0][0] == images[1].sha256


async def test_defect_5_input_images_of_the_request_are_unchanged(home):
    images = [tiny_image("input")]
    with ModelCalls(home, "trajectories", SHARD, roles(), LIMITS) as calls:
        loop = Loop(calls, LoopSettings(), "p1", plan("a", "b"), tuple(images))
        async for _ in loop.events():
            pass
    assert loop.images == (tiny_image("input"),)


async def test_defect_2_first_step_without_a_caption_is_planned_and_run(home):
    """Its reasoning is recorded, too: defect 1."""
    bare = Plan((PlanStep(1, "one", None, "Draw a cat", None),), "of one step")
    backends = roles(planner=ScriptedPlanner(answer=lambda request: bare))
    planned_shard = await plan_shard([prompt_row()], backends, home, LoopSettings(), LIMITS)
    result = await run_shard(
        [prompt_row()], planned_shard.plans, backends, home, SHARD, LoopSettings(), LIMITS
    )
    assert planned_shard.plans[0].auxiliary_text is None
    assert planned_shard.plans[0].reasoning == "of one step"
    assert result.trajectories[0].status == "complete"


async def test_defect_4_failed_critic_call_has_no_earlier_verdict(home):
    critic = ScriptedCritic(verdicts={"b": [UnusableAnswerError("gibberish")]})
    trajectory, attempts = await run(home, roles(critic=critic), "a", "b", "c")
    assert trajectory.status == "quarantined"
    assert trajectory.error == "critic scripted/1 failed at step 2: gibberish"
    assert [(a.step_number, a.chosen) for a in attempts] == [(1, True)]


async def test_invalid_plan_is_quarantined_with_its_reason(home):
    broken = {
        "p1": (plan(), "the plan has no steps"),
        "p2": (plan(*"abcd"), "the plan has 4 steps, more than max_steps = 3"),
        "p3": (Plan(plan("a").steps * 2), "the plan's step numbers do not rise: [1, 1]"),
    }
    planner = ScriptedPlanner(answer=lambda request: broken[request.text[-2:]][0])
    prompts, settings = [prompt_row(name) for name in broken], LoopSettings(max_steps=3)
    result = await plan_shard(prompts, roles(planner=planner), home, settings, LIMITS)
    assert result.plans == []
    reasons = [(row.prompt_id, row.stage, row.reason) for row in result.quarantine]
    assert reasons == [(name, "plans", reason) for name, (_, reason) in broken.items()]


async def test_sequence_of_events(home):
    critic = ScriptedCritic(verdicts={"b": [reject("B")] * 2})
    with ModelCalls(home, "trajectories", SHARD, roles(critic=critic), LIMITS) as calls:
        loop = Loop(calls, LoopSettings(t_max=2), "p1", plan("a", None, "b"))
        events = [event async for event in loop.events()]
    attempt = [ImageGenerated, AttemptJudged]
    assert [type(event) for event in events] == [
        *[StepStarted, *attempt, StepAccepted],
        *[StepStarted, TextEmitted],
        *[StepStarted, *attempt, *attempt, StepExhausted],
        TrajectoryFinished,
    ]
    assert events[5].text == "words 2"


# --- Input images of the generator ----------------------------------------------------------------

INPUTS = (tiny_image("input 1"), tiny_image("input 2"))
STEPS = ("Draw a cat", "Add a hat", None, "Add a dog")


class MultiReferenceGenerator(ScriptedGenerator):
    max_reference_images: int | None = None


def generator_inputs(backends):
    """The images of every generator call."""
    return [list(sources) for _, sources, _ in backends.generator.calls]


async def test_conditioning_all_has_the_images_so_far_without_rejected_ones(home):
    critic = ScriptedCritic(verdicts={"Add a hat": [reject("Add a RED hat"), ACCEPT]})
    backends = roles(generator=MultiReferenceGenerator(), critic=critic)
    _, attempts = await run(home, backends, *STEPS, images=INPUTS, conditioning="all")
    inputs = [image.sha256 for image in INPUTS]
    cat, _rejected, hat, _dog = (attempt.image for attempt in attempts)
    assert generator_inputs(backends) == [
        inputs,
        [*inputs, cat],
        [*inputs, cat],
        [*inputs, cat, hat],
    ]
    assert [attempt.source_image for attempt in attempts] == [inputs[-1], cat, cat, hat]


async def test_conditioning_all_is_limited_to_the_newest_images(home):
    generator = MultiReferenceGenerator()
    generator.max_reference_images = 2
    backends = roles(generator=generator)
    _, attempts = await run(home, backends, *STEPS, conditioning="all")
    cat, hat, _ = (attempt.image for attempt in attempts)
    assert generator_inputs(backends) == [[], [cat], [cat, hat]]
    backends = roles(generator=MultiReferenceGenerator())
    _, attempts = await run(home, backends, *STEPS, images=INPUTS, conditioning="last")
    assert generator_inputs(backends) == [[attempt.source_image] for attempt in attempts]


async def test_default_conditioning_changes_no_id_and_no_request_hash(home):
    assert "conditioning" not in LoopSettings().model_dump()
    assert LoopSettings(conditioning="all").model_dump()["conditioning"] == "all"
    backends, prompt = roles(), prompt_row()
    with ModelCalls(home, "trajectories", SHARD, backends, LIMITS) as calls:
        drawn = plan("Draw a cat", "Add a hat")
        loop = Loop(calls, LoopSettings(), prompt.prompt_id, drawn, INPUTS)
        events = [event async for event in loop.events()]
    for draw in (event for event in events if isinstance(event, ImageGenerated)):
        content = {"prompt": draw.prompt, "images": [draw.source.sha256], "seed": draw.seed}
        assert draw.call.request_hash == request_hash("generator", backends.generator, content)
