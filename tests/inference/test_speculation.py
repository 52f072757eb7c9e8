"""Speculative draws and several candidates."""

import asyncio
import random

import pytest

from inference.calls.ask import CallSite, ModelCalls
from inference.events import ImageGenerated, StepAccepted, StepExhausted, TrajectoryFinished
from inference.loop import Loop
from inference.roles import UnusableAnswerError
from inference.settings import Limits, LoopSettings
from tests.inference.scripted_world import (
    ACCEPT,
    ScriptedCritic,
    ScriptedGenerator,
    plan,
    reject,
    roles,
)


class SlowGenerator(ScriptedGenerator):
    """Takes some time for every image, and counts the draws begun."""

    seconds = 0.02
    begun = 0

    async def generate(self, prompt, images, seed):
        self.begun += 1
        await asyncio.sleep(self.seconds)
        return await super().generate(prompt, images, seed)


class SlowCritic(ScriptedCritic):
    seconds = 0.02

    async def judge(self, before, after, instruction, prompt):
        await asyncio.sleep(self.seconds)
        return await super().judge(before, after, instruction, prompt)


def random_verdicts(rate, steps):
    """Verdicts that accept with probability `rate`, the same in every run."""
    generator = random.Random(7)
    verdicts = {}
    for step in range(steps):
        goal = f"add {step}"
        verdicts[goal] = []
        while generator.random() > rate:
            verdicts[goal].append(reject(f"{goal} again {len(verdicts[goal])}"))
        verdicts[goal].append(ACCEPT)
    return verdicts


async def run(home, backends, *prompts, generators=4, **options):
    names = {"draw_ahead", "candidates"} & options.keys()
    loop_options = {name: options.pop(name) for name in names}
    settings = LoopSettings(**options)
    limits = Limits(generator=generators, backoff_seconds=0)
    name = f"s{len(list(home.local.rglob('*.jsonl')))}"
    with ModelCalls(home, "generations", name, backends, limits) as calls:
        loop = Loop(calls, settings, "p1", plan(*prompts), **loop_options)
        return [event async for event in loop.events()]


def chosen_images(events):
    """Step number and image of every finished step."""
    steps = [e for e in events if isinstance(e, StepAccepted | StepExhausted)]
    return [(e.step.step_number, e.chosen and e.chosen.draw.image.sha256) for e in steps]


def attempts(events):
    draws = [e for e in events if isinstance(e, ImageGenerated)]
    return [(d.step.step_number, d.iteration, d.prompt, d.seed, d.image.sha256) for d in draws]


async def test_trajectory_is_the_same_with_and_without_speculation(home):
    prompts = [f"add {step}" for step in range(12)]
    for rule, rate in (("last", 0.3), ("best", 0.3), ("stop", 0.8), ("last", 0.8), ("last", 1.0)):
        runs = []
        for ahead in (False, True):
            critic = SlowCritic(verdicts=random_verdicts(rate, 12))
            backends = roles(generator=SlowGenerator(), critic=critic)
            options = {"draw_ahead": ahead, "on_exhausted": rule, "t_max": 3}
            runs.append(await run(home, backends, *prompts, **options))
        plain, fast = runs
        assert chosen_images(plain) == chosen_images(fast) and attempts(plain) == attempts(fast)
        assert plain[-1].status == fast[-1].status and plain[-1].wasted_draws == 0


async def test_speculative_draw_after_a_rejection_is_discarded_and_counted(home):
    generator = SlowGenerator()
    critic = SlowCritic(verdicts={"a": [reject("a2"), ACCEPT]})
    events = await run(home, roles(generator=generator, critic=critic), "a", "b", draw_ahead=True)
    assert events[-1] == TrajectoryFinished("complete", wasted_draws=1)
    assert generator.begun == 4 and len(attempts(events)) == 3


async def test_speculation_skips_text_only_steps(home):
    generator, critic = SlowGenerator(), SlowCritic()
    backends = roles(generator=generator, critic=critic)
    events = await run(home, backends, "a", None, "b", draw_ahead=True)
    assert events[-1] == TrajectoryFinished("complete", 0) and generator.begun == 2


async def test_no_speculation_while_the_generator_is_busy(home):
    generator = SlowGenerator()
    critic = SlowCritic(verdicts={"a": [reject("a2"), ACCEPT]})
    backends = roles(generator=generator, critic=critic)
    limits = Limits(generator=1, backoff_seconds=0)
    with ModelCalls(home, "generations", "busy", backends, limits) as calls:
        loop = Loop(calls, LoopSettings(), "p1", plan("a", "b"), draw_ahead=True)
        other = asyncio.create_task(hold(calls))
        events = [event async for event in loop.events()]
        other.cancel()
    assert events[-1].wasted_draws == 0


async def hold(calls):
    """Another request's draws, one after another, in the only slot."""
    seed = 0
    while True:
        await calls.generate(CallSite("other", 1, seed), "other", (), seed)
        seed += 1


async def test_closed_loop_has_no_draw_under_way(home):
    generator = SlowGenerator()
    with ModelCalls(home, "generations", "closed", roles(generator=generator), Limits()) as calls:
        events = Loop(calls, LoopSettings(), "p", plan("a", "b"), draw_ahead=True).events()
        async for event in events:
            if isinstance(event, ImageGenerated):
                break
        await events.aclose()
        assert len(asyncio.all_tasks()) == 1


async def test_failed_speculative_draw_matters_only_if_it_is_used(home):
    def fail(prompt):
        if prompt == "b":
            raise UnusableAnswerError("cannot be drawn")

    with pytest.raises(UnusableAnswerError):
        await run(home, roles(generator=SlowGenerator(fail=fail)), "a", "b", draw_ahead=True)
    critic = SlowCritic(verdicts={"a": [reject("a2"), reject("a3")]})
    backends = roles(generator=SlowGenerator(fail=fail), critic=critic)
    options = {"draw_ahead": True, "t_max": 2, "on_exhausted": "stop"}
    assert (await run(home, backends, "a", "b", **options))[-1].status == "stopped"


async def test_first_accepted_of_several_candidates_is_chosen(home):
    class AcceptsSecondAndThird(ScriptedCritic):
        async def judge(self, before, after, instruction, prompt):
            await super().judge(before, after, instruction, prompt)
            return ACCEPT if len(self.calls) in (2, 3) else reject("other words")

    critic = AcceptsSecondAndThird()
    events = await run(home, roles(critic=critic), "a", candidates=3, t_max=2)
    draws = attempts(events)
    assert [d[1] for d in draws] == [0, 1, 2] and len({d[3] for d in draws}) == 3
    assert chosen_images(events) == [(1, draws[1][4])]


async def test_rejected_candidates_are_redrawn_from_the_first_rewritten_prompt(home):
    critic = ScriptedCritic(verdicts={"a": [reject(""), reject("a, red")]})
    events = await run(home, roles(critic=critic), "a", candidates=2, t_max=2)
    assert [(d[1], d[2]) for d in attempts(events)] == [
        (0, "a"),
        (1, "a"),
        (2, "a, red"),
        (3, "a, red"),
    ]
    assert [call[3] for call in critic.calls] == ["", "", "a, red", "a, red"]


async def test_failed_candidate_cancels_the_others(home):
    def fail(prompt):
        raise UnusableAnswerError("cannot be drawn")

    with pytest.raises(UnusableAnswerError):
        await run(home, roles(generator=SlowGenerator(fail=fail)), "a", candidates=3)
    assert len(asyncio.all_tasks()) == 1
