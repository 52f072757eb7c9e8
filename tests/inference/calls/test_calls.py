"""Model calls: journal, pools, timeouts, retries, ledger."""

import asyncio

import pytest

from inference.calls.ask import CallSite, ModelCalls
from inference.calls.retry import CallFailedError, pause_timeout, report_usage
from inference.roles import RetryableError, UnusableAnswerError
from inference.settings import Limits
from schemas import FoundryError
from tests.inference.scripted_world import (
    ACCEPT,
    SHARD,
    ScriptedCritic,
    ScriptedGenerator,
    roles,
    tiny_image,
)
from warehouse import EncodedImage

SITE = CallSite("p1", 1, 0)
LIMITS = Limits(backoff_seconds=0)


def model_calls(home, backends, limits=LIMITS, asset="trajectories", **more):
    return ModelCalls(home, asset, SHARD, backends, limits, **more)


async def draw(home, generator, prompt="a cat", seed=1, limits=LIMITS):
    """One draw in a new run; its answer and the ledger after it."""
    with model_calls(home, roles(generator=generator), limits) as calls:
        try:
            answer = (await calls.generate(SITE, prompt, (), seed)).answer
        except (UnusableAnswerError, CallFailedError) as error:
            answer = error
        return answer, calls.ledger()


class Flaky(ScriptedGenerator):
    """Raises the given errors in turn, then returns images."""

    def __init__(self, *errors):
        super().__init__()
        self.errors = list(errors)

    async def generate(self, prompt, images, seed):
        image = await super().generate(prompt, images, seed)
        if self.errors:
            raise self.errors.pop(0)
        return image


class Slow(ScriptedGenerator):
    """Never returns; counts its cancellations."""

    cancelled = 0

    async def generate(self, prompt, images, seed):
        self.calls.append(prompt)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return tiny_image()


class CountsConcurrency(ScriptedGenerator, ScriptedCritic):
    """Generator and critic that record the maximum of concurrent calls."""

    def __init__(self):
        super().__init__()
        self.running, self.most = 0, 0

    async def generate(self, prompt, images, seed):
        return await self._work(tiny_image(prompt))

    async def judge(self, before, after, instruction, prompt):
        return await self._work(ACCEPT)

    async def _work(self, answer):
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.005)
        self.running -= 1
        return answer


async def test_finished_call_is_answered_from_the_journal(home):
    generator = ScriptedGenerator()
    first, ledger = await draw(home, generator)
    again, ledger_again = await draw(home, generator)
    assert first == again
    assert len(generator.calls) == 1
    assert ledger == ledger_again
    assert (ledger[0].role, ledger[0].cached, ledger[0].error) == ("generator", False, None)


async def test_concurrent_equal_requests_are_one_call(home):
    critic = CountsConcurrency()
    with model_calls(home, roles(critic=critic)) as calls:
        requests = [calls.judge(SITE, None, tiny_image(), "a cat", "") for _ in range(3)]
        verdicts = await asyncio.gather(*requests)
        assert {verdict.answer.accepted for verdict in verdicts} == {True}
        assert (critic.most, len(calls.ledger())) == (1, 1)


async def test_changed_request_is_another_call(home):
    generator = ScriptedGenerator()
    for change in ({}, {"seed": 2}, {"prompt": "a dog"}, {}):
        _, ledger = await draw(home, generator, **change)
    assert len(generator.calls) == 3
    assert len({row.call_id for row in ledger}) == len({row.request_hash for row in ledger}) == 3
    _, with_other_model = await draw(home, ScriptedGenerator(model="2"))
    assert [row.model for row in with_other_model] == ["1", "1", "1", "2"]
    assert with_other_model[:3] == ledger


async def test_transient_errors_are_retried(home):
    for seed, error in enumerate((RetryableError("busy"), ConnectionResetError(), TimeoutError())):
        generator = Flaky(error, error)
        answer, ledger = await draw(home, generator, seed=seed)
        assert isinstance(answer, EncodedImage)
        assert len(generator.calls) == 3
        assert (ledger[-1].retries, ledger[-1].error) == (2, None)


async def test_call_fails_after_the_last_try_and_a_rerun_makes_it_again(home):
    generator = Flaky(*[RetryableError("busy")] * 3)
    error, ledger = await draw(home, generator)
    assert isinstance(error, CallFailedError)
    message = "generator scripted/1 failed at step 1 after 3 tries: RetryableError: busy"
    assert str(error) == message
    assert [(row.retries, row.error) for row in ledger] == [(2, "RetryableError: busy")]
    answer, ledger = await draw(home, generator)
    assert isinstance(answer, EncodedImage)
    assert [row.error for row in ledger] == ["RetryableError: busy", None]
    assert len({row.call_id for row in ledger}) == 2


async def test_unusable_answer_is_final_also_in_a_rerun(home):
    generator = Flaky(UnusableAnswerError("not allowed"), UnusableAnswerError("not allowed"))
    for _ in range(2):
        error, ledger = await draw(home, generator)
        assert isinstance(error, UnusableAnswerError)
        assert [(row.retries, row.error) for row in ledger] == [(0, "not allowed")]
    assert len(generator.calls) == 1


async def test_defect_7_try_beyond_the_timeout_is_cancelled(home):
    generator = Slow()
    limits = Limits(call_timeout_seconds=0.01, tries=2, backoff_seconds=0, generator=1)
    error, ledger = await draw(home, generator, limits=limits)
    assert "after 2 tries: TimeoutError: no answer within 0.01 s" in str(error)
    assert generator.cancelled == len(generator.calls) == 2
    assert ledger[0].error is not None


async def test_reported_usage_is_in_the_ledger_with_failed_tries(home):
    class Metered(Flaky):
        async def generate(self, prompt, images, seed):
            report_usage(input_tokens=10, cost_usd=0.5)
            return await super().generate(prompt, images, seed)

    report_usage(input_tokens=1000)  # outside any call: ignored
    _, ledger = await draw(home, Metered(RetryableError()))
    row = ledger[0]
    assert (row.input_tokens, row.output_tokens, row.cost_usd, row.images) == (20, None, 1.0, 1)


async def test_other_errors_and_wrong_answers_are_not_retried(home):
    class Answers(ScriptedGenerator):
        answer = None

        async def generate(self, prompt, images, seed):
            self.calls.append(prompt)
            return self.answer

    truncated = Answers()
    truncated.answer = EncodedImage(tiny_image().data[:30])
    for seed, (generator, kind, message) in enumerate(
        [
            (Flaky(ZeroDivisionError("oops")), CallFailedError, "ZeroDivisionError: oops"),
            (Answers(), CallFailedError, "TypeError: answered with NoneType, not EncodedImage"),
            (truncated, UnusableAnswerError, "cannot be decoded"),
        ]
    ):
        error, ledger = await draw(home, generator, seed=seed)
        assert isinstance(error, kind) and message in str(error)
        assert str(error).startswith("generator scripted/1 failed at step 1: ")
        assert (len(generator.calls), ledger[-1].retries) == (1, 0) and message in ledger[-1].error


async def test_deleted_image_is_drawn_again(home):
    generator = ScriptedGenerator()
    first, _ = await draw(home, generator)
    (home.local / "images" / home.images.relative_path(first.sha256)).unlink()
    again, ledger = await draw(home, generator)
    assert again == first
    assert home.images.exists(first.sha256)
    assert len(generator.calls) == len({row.call_id for row in ledger}) == 2


async def test_generator_and_agents_have_separate_pools(home):
    generator, critic = CountsConcurrency(), CountsConcurrency()
    backends = roles(generator=generator, critic=critic)
    with model_calls(home, backends, Limits(generator=2, agents=3)) as calls:
        draws = [calls.generate(CallSite("p", 1, n), f"{n}", (), n) for n in range(8)]
        verdicts = [calls.judge(CallSite("p", 1, n), None, tiny_image(n), "", "") for n in range(8)]
        await asyncio.gather(*draws, *verdicts)
    assert (generator.most, critic.most) == (2, 3)


async def test_waiting_retry_holds_no_slot(home):
    class FirstBusy(ScriptedGenerator):
        async def generate(self, prompt, images, seed):
            self.calls.append(prompt)
            if self.calls == ["first"]:
                raise RetryableError("busy")
            return tiny_image(prompt)

    generator = FirstBusy()
    limits = Limits(generator=1, backoff_seconds=0.2)
    with model_calls(home, roles(generator=generator), limits) as calls:
        first = asyncio.create_task(calls.generate(CallSite("p", 1, 0), "first", (), 1))
        await asyncio.sleep(0)
        await calls.generate(CallSite("p", 1, 1), "second", (), 1)
        await first
    assert generator.calls[:2] == ["first", "second"]


async def test_paused_try_holds_no_slot(home):
    may_continue = asyncio.Event()

    class Waits(ScriptedGenerator):
        finished, busy, most = [], 0, 0

        async def generate(self, prompt, images, seed):
            async with pause_timeout():
                if prompt == "refused":
                    raise UnusableAnswerError("no")
                if prompt == "paused":
                    await may_continue.wait()
            self.busy += 1
            self.most = max(self.most, self.busy)
            await asyncio.sleep(0.01)
            self.busy -= 1
            self.finished.append(prompt)
            return tiny_image(prompt)

    generator = Waits()
    with model_calls(home, roles(generator=generator), Limits(generator=1)) as calls:

        def start(number, prompt):
            return asyncio.create_task(calls.generate(CallSite("p", 1, number), prompt, (), 1))

        refused, paused = start(0, "refused"), start(1, "paused")
        await start(2, "quick")
        may_continue.set()
        await asyncio.gather(paused, start(3, "third"), start(4, "fourth"))
        with pytest.raises(UnusableAnswerError, match="no"):
            await refused
    assert generator.finished[0] == "quick"
    assert (len(generator.finished), generator.most) == (4, 1)


async def test_shard_has_one_writer(home):
    wrong = pytest.raises(FoundryError, match="being written by another process")
    with model_calls(home, roles()), wrong:
        model_calls(home, roles()).__enter__()


async def test_invalid_journal_line_is_named(home):
    with home.journal("trajectories", SHARD) as journal:
        journal.append({"something": "else"})
    with pytest.raises(FoundryError, match=r"test-0000.jsonl:1: not a model call"):
        model_calls(home, roles()).__enter__()
