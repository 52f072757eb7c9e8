"""Whole shards: quarantine, failure share, ids, scores and reruns."""

import asyncio

import pytest

from inference.calls import forecast
from inference.roles import BackendError, UnusableAnswerError
from inference.settings import Limits, LoopSettings
from inference.shard import plan_shard, run_shard, score_shard
from schemas import FoundryError
from tests.inference.scripted_world import (
    SHARD,
    ScriptedCritic,
    ScriptedGenerator,
    ScriptedPlanner,
    ScriptedScorer,
    plan,
    prompt_row,
    reject,
    roles,
    shard_inputs,
    tiny_image,
)
from warehouse import Home

LIMITS = Limits(failure_share=0.2, backoff_seconds=0)
NAMES = [f"p{n}" for n in range(10)]


class RecordedProgress:
    def __init__(self):
        self.updates = []

    def update(self, done, total, note=""):
        self.updates.append((done, total, note))


async def run(home, backends=None, names=NAMES, limits=LIMITS, progress=None, **settings):
    backends = backends or roles()
    loop = LoopSettings(**settings)
    inputs = shard_inputs(names, "one", "two")
    return await run_shard(*inputs, backends, home, SHARD, loop, limits, progress)


async def score(home, result, backends, limits=LIMITS):
    _, plans = shard_inputs(NAMES, "one", "two")
    return await score_shard(
        result.attempts, result.trajectories, plans, backends, home, SHARD, limits
    )


def failing_generator(*names, error=None):
    """A generator that raises for these prompts."""

    def fail(prompt):
        if prompt.split()[0] in names:
            raise error or UnusableAnswerError("cannot draw this")

    return ScriptedGenerator(fail=fail)


async def test_rows_are_in_the_order_of_the_prompts(home):
    result = await run(home)
    assert [t.prompt_id for t in result.trajectories] == NAMES
    assert [a.prompt_id for a in result.attempts] == [name for name in NAMES for _ in range(2)]
    assert len(result.calls) == 40
    assert {(call.asset, call.shard) for call in result.calls} == {("trajectories", SHARD)}


async def test_failed_prompt_is_quarantined_and_the_others_finish(tmp_path):
    for error in (UnusableAnswerError("cannot draw this"), ZeroDivisionError("oops")):
        home, progress = Home(tmp_path / type(error).__name__), RecordedProgress()
        generator = failing_generator("p3", error=error)
        result = await run(home, roles(generator=generator), progress=progress)
        states = {t.prompt_id: t.status for t in result.trajectories}
        assert states.pop("p3") == "quarantined"
        assert set(states.values()) == {"complete"}
        [row] = result.quarantine
        assert (row.prompt_id, row.stage) == ("p3", "trajectories")
        assert str(error) in row.reason and "\n" not in row.reason
        assert result.trajectories[3].error == row.reason
        assert sum(call.error is not None for call in result.calls) == 1
        assert [done for done, _, _ in progress.updates] == list(range(11))
        assert progress.updates[0] == (0, 10, "") and progress.updates[-1][2] == "1 quarantined"


async def test_shard_fails_only_above_failure_share(home, tmp_path):
    result = await run(home, roles(generator=failing_generator("p1", "p2")))
    assert len(result.quarantine) == 2
    with pytest.raises(FoundryError) as caught:
        await run(Home(tmp_path / "other"), roles(generator=failing_generator("p1", "p2", "p3")))
    message = str(caught.value)
    assert "trajectories of test-0000: 3 of 10 prompts quarantined (30%" in message
    assert "allows 20%" in message
    assert "p1: generator scripted/1 failed at step 1: cannot draw this" in message
    assert "\n" not in message


async def test_rerun_of_a_failed_shard_repeats_no_finished_call(home):
    broken = failing_generator("p1", "p2", "p3", error=ZeroDivisionError("oops"))
    with pytest.raises(FoundryError):
        await run(home, roles(generator=broken))
    repaired = ScriptedGenerator()
    result = await run(home, roles(generator=repaired))
    assert {t.status for t in result.trajectories} == {"complete"}
    assert broken.finished_prompts
    assert set(broken.finished_prompts).isdisjoint(repaired.finished_prompts)


async def test_prompt_without_a_plan_is_a_quarantined_trajectory(home):
    prompts, plans = shard_inputs(NAMES, "one", "two")
    result = await run_shard(prompts, plans[2:], roles(), home, SHARD, LoopSettings(), LIMITS)
    first = result.trajectories[0]
    assert (first.status, first.plan_id, first.error) == ("quarantined", None, "it has no plan")
    assert [row.prompt_id for row in result.quarantine] == ["p0"]


async def test_missing_or_damaged_input_image_quarantines_its_prompt(home):
    damaged = home.images.put(tiny_image("damaged"))
    path = home.local / "images" / home.images.relative_path(damaged)
    path.write_bytes(path.read_bytes()[:20])
    prompts = [prompt_row("p0", [tiny_image("gone").sha256]), prompt_row("p1", [damaged])]
    limits = Limits(failure_share=1.0)
    result = await plan_shard(prompts, roles(), home, LoopSettings(), limits)
    reasons = [row.reason for row in result.quarantine]
    assert "is missing" in reasons[0]
    assert "is damaged" in reasons[1]


async def test_write_error_of_the_lake_fails_the_shard(home):
    home.local.mkdir()
    (home.local / "images").write_text("in the way")
    with pytest.raises(FoundryError, match="a file is in the way"):
        await run(home)
    assert not list(home.journal("trajectories", SHARD).records()), "no image, no line"


async def test_ids_are_the_same_in_a_rerun_and_in_another_home(home, tmp_path):
    first, again = await run(home), await run(home)
    other = await run(Home(tmp_path / "other"))
    assert first == again
    assert [t.trajectory_id for t in first.trajectories] == [
        t.trajectory_id for t in other.trajectories
    ]
    assert {c.call_id for c in first.calls} == {c.call_id for c in other.calls}


async def test_settings_and_backends_are_part_of_trajectory_ids(home):
    changes = (
        {},
        {"seed": 1},
        {"t_max": 4},
        {"on_exhausted": "stop"},
        {"backends": roles(generator=ScriptedGenerator(model="2"))},
        {"backends": roles(critic=ScriptedCritic(backend="other"))},
    )
    runs = [await run(home, names=["p0"], **change) for change in changes]
    assert len({result.trajectories[0].trajectory_id for result in runs}) == len(changes)


async def test_scorer_is_part_of_the_id_only_with_on_exhausted_best(home):
    better = roles(scorer=ScriptedScorer(model="2"))
    assert (await run(home)).trajectories == (await run(home, better)).trajectories
    best = await run(home, on_exhausted="best")
    assert best.trajectories != (await run(home, better, on_exhausted="best")).trajectories


async def test_seed_changed_and_changed_back(home):
    generator = ScriptedGenerator()
    first = await run(home, roles(generator=generator))
    await run(home, roles(generator=generator), seed=1)
    assert len(generator.calls) == 40
    back = await run(home, roles(generator=generator))
    assert len(generator.calls) == 40
    assert back.attempts == first.attempts
    assert len(back.calls) == 80  # what was paid for stays in the ledger


async def test_trajectories_in_flight_are_bounded(home):
    running, most = set(), []

    class Counting(ScriptedGenerator):
        async def generate(self, prompt, images, seed):
            running.add(prompt.split()[0])
            most.append(len(running))
            image = await super().generate(prompt, images, seed)
            if prompt.endswith("two"):
                running.discard(prompt.split()[0])
            return image

    await run(home, roles(generator=Counting()), limits=Limits(trajectories_in_flight=3))
    assert max(most) == 3


async def test_rerun_of_a_cancelled_shard_repeats_no_finished_call(home, tmp_path):
    started = asyncio.Event()

    class Halting(ScriptedGenerator):
        async def generate(self, prompt, images, seed):
            if len(self.calls) == 9:
                started.set()
                await asyncio.sleep(3600)
            return await super().generate(prompt, images, seed)

    halting, backends = Halting(), roles()
    task = asyncio.create_task(run(home, roles(generator=halting)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = await run(home, backends)
    assert halting.finished_prompts
    assert set(halting.finished_prompts).isdisjoint(backends.generator.finished_prompts)
    undisturbed = await run(Home(tmp_path / "other"))
    assert without_seconds(result.attempts) == without_seconds(undisturbed.attempts)


async def test_planning_records_every_step_and_every_call(home):
    answer = plan("draw", None)
    backends = roles(planner=ScriptedPlanner(answer=lambda request: answer))
    prompts = [prompt_row(name) for name in NAMES]
    result = await plan_shard(prompts, backends, home, LoopSettings(), LIMITS)
    assert [(row.prompt_id, row.step_number) for row in result.plans[:2]] == [("p0", 1), ("p0", 2)]
    assert result.plans[1].prompt is None
    assert result.plans[0].planner == "scripted/1"
    assert [(c.role, c.prompt_id) for c in result.calls] == [("planner", name) for name in NAMES]
    assert await plan_shard(prompts, backends, home, LoopSettings(), LIMITS) == result
    assert len(backends.planner.calls) == 10


async def test_loops_begin_while_others_are_planned(home, tmp_path):
    prompts = [prompt_row(name) for name in NAMES]
    drawn, alone = asyncio.Event(), roles()

    class WaitsForAnImage(ScriptedPlanner):
        async def plan(self, request):
            if request.text.endswith("p9"):
                await drawn.wait()
            return await super().plan(request)

    class SignalsDrawing(ScriptedGenerator):
        async def generate(self, prompt, images, seed):
            drawn.set()
            return await super().generate(prompt, images, seed)

    async def plan_and_run(home, backends, **more):
        settings = (LoopSettings(), LIMITS)
        planned = await plan_shard(prompts, backends, home, *settings, **more)
        rows = planned.plans
        return planned, await run_shard(prompts, rows, backends, home, SHARD, *settings)

    both = roles(planner=WaitsForAnImage(), generator=SignalsDrawing())
    planned, run = await plan_and_run(home, both, begin_loops=True)
    expected, expected_run = await plan_and_run(Home(tmp_path / "alone"), alone)
    assert planned.plans == expected.plans
    assert without_seconds(run.attempts) == without_seconds(expected_run.attempts)
    assert run.trajectories == expected_run.trajectories
    assert len(both.generator.calls) == len(both.critic.calls) == len(NAMES)


async def test_a_generator_without_a_key_is_not_asked_again_while_others_are_planned(home):
    def fail(prompt):
        raise BackendError("the key is wrong")

    prompts = [prompt_row(f"p{n}") for n in range(40)]
    backends = roles(generator=ScriptedGenerator(fail=fail))
    limits = Limits(generator=1, agents=1)
    planned = await plan_shard(prompts, backends, home, LoopSettings(), limits, begin_loops=True)
    assert len({row.prompt_id for row in planned.plans}) == 40, "plans do not fail with it"
    assert len(backends.generator.calls) <= limits.in_flight < 10, "those that had begun"


async def test_progress_has_a_forecast_of_the_calls_made_now(home, monkeypatch):
    monkeypatch.setattr(forecast, "_INTERVAL_SECONDS", 0)
    names, limits = [f"p{n}" for n in range(40)], Limits(trajectories_in_flight=2)
    first, again = RecordedProgress(), RecordedProgress()
    await run(home, names=names, limits=limits, progress=first)
    notes = {done: note for done, _, note in first.updates}
    assert notes[forecast.MIN_PROMPTS] == "" and notes[40] == ""
    assert notes[35].startswith("ends ") and "USD" not in notes[35], "scripted models have no price"
    await run(home, names=names, limits=limits, progress=again)
    assert {note for _, _, note in again.updates} == {""}


async def test_empty_shard(home):
    assert (await plan_shard([], roles(), home, LoopSettings(), LIMITS)).plans == []
    assert (await run(home, names=[])).trajectories == []


async def test_attempts_are_scored_against_the_plans_prompt(home):
    critic = ScriptedCritic(verdicts={"p0 one": [reject("p0 ONE")]})
    scorer = ScriptedScorer(grades=[4.0])
    backends = roles(critic=critic, scorer=scorer)
    result = await run(home, backends)
    scored = await score(home, result, backends)
    keys = [(row.trajectory_id, row.step_number, row.iteration) for row in scored.scores]
    assert keys == [(a.trajectory_id, a.step_number, a.iteration) for a in result.attempts]
    assert len(scorer.calls) == len(scored.calls) == 21
    one = [call for call in scorer.calls if call[2] == "p0 one"]
    assert [call[1] for call in one] == [a.image for a in result.attempts[:2]]
    low = next(row for row in scored.scores if row.overall != 10)
    assert (low.edit_success, low.semantics, low.quality, low.overall) == (4, 4, 4, 4)


async def test_defect_6_failed_score_is_missing_and_moves_no_other(home):
    class Partial(ScriptedScorer):
        async def score(self, before, after, instruction):
            if instruction == "p3 two":
                raise UnusableAnswerError("no idea")
            return await super().score(before, after, instruction)

    result = await run(home)
    scored = await score(home, result, roles(scorer=Partial()))
    assert [(row.prompt_id, row.stage) for row in scored.quarantine] == [("p3", "scores")]
    keys = {(row.trajectory_id, row.step_number) for row in scored.scores}
    expected = {(a.trajectory_id, a.step_number) for a in result.attempts if a.prompt_id != "p3"}
    assert keys == expected


def without_seconds(attempts):
    return [a.model_dump(exclude={"generator_seconds", "critic_seconds"}) for a in attempts]
