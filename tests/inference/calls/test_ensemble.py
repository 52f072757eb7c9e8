"""Ensembles of scorers: means, refusals, and reruns."""

import asyncio
import multiprocessing
import os
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from inference.backends.factory import Backends
from inference.calls.ask import CallSite, ModelCalls
from inference.calls.retry import CallFailedError
from inference.calls.scoring import Ensemble
from inference.roles import BackendError, RetryableError, Score, Scorer, UnusableAnswerError
from inference.settings import Limits, LoopSettings
from inference.shard import run_shard, score_shard
from tests.inference.scripted_world import (
    SHARD,
    Scripted,
    ScriptedScorer,
    plan_rows_for,
    prompt_row,
    reject,
    roles,
    tiny_image,
)
from warehouse import Home

SITE = CallSite("p1", 1, 0)
LIMITS = Limits(backoff_seconds=0, tries=1, failure_share=1)
PROCESSES = multiprocessing.get_context("forkserver")


def scorer(name, *grades, model="1"):
    return ScriptedScorer(name, model, grades=list(grades))


def ensemble(*scorers, weights=(1.0, 3.0)):
    named = {scorer.backend: scorer for scorer in scorers}
    return Ensemble(named, dict(zip(named, weights, strict=True)))


def calls_of(home, scorer, asset="scores", **more):
    return ModelCalls(home, asset, SHARD, roles(scorer=scorer), LIMITS, **more)


async def score_once(home, scorer, site=SITE):
    with calls_of(home, scorer) as calls:
        try:
            return await calls.score(site, None, tiny_image(), "a cat"), calls.ledger()
        except Exception as error:
            return error, calls.ledger()


async def test_score_is_the_weighted_mean_of_each_grade():
    class Fixed(Scripted):
        def __init__(self, name, *grades):
            super().__init__(name)
            self.grades = grades

        async def score(self, before, after, instruction):
            return Score(*self.grades)

    both = ensemble(Fixed("a", 10, 4, 8, 0), Fixed("b", 2, 8, 8, 4))
    assert isinstance(both, Scorer)
    score = await both.score(None, tiny_image(), "a cat")
    assert score == Score(4.0, 7.0, 8.0, 3.0)
    assert (score.semantics, score.quality, score.overall) == (4.0, 3.0, 12**0.5)


async def test_refusal_is_not_part_of_the_mean(home):
    result, _ = await score_once(
        home, ensemble(scorer("a", UnusableAnswerError("no cat here")), scorer("b", 6))
    )
    assert result.score == Score(6, 10, 6, 10)
    refused, scored = result.members
    assert refused.score is None and refused.refusal.endswith("no cat here")
    assert scored.score == result.score and scored.refusal is None


async def test_refusal_of_all_members_is_an_error(home):
    both = ensemble(
        scorer("a", UnusableAnswerError("no cat")), scorer("b", UnusableAnswerError("no dog"))
    )
    error, ledger = await score_once(home, both)
    assert isinstance(error, UnusableAnswerError)
    assert "no cat" in str(error) and "no dog" in str(error)
    assert len(ledger) == 2


async def test_every_member_has_a_ledger_row(home):
    _, ledger = await score_once(home, ensemble(scorer("a"), scorer("b", model="2")))
    assert {(call.role, call.backend, call.model) for call in ledger} == {
        ("scorer", "a", "1"),
        ("scorer", "b", "2"),
    }
    assert len({call.request_hash for call in ledger}) == 2


@pytest.mark.parametrize("failure", [RetryableError("busy"), BackendError("the budget is spent")])
async def test_finished_call_is_not_repeated_when_another_member_failed(home, failure):
    sound, failing = scorer("a", 4), scorer("b", failure, 8)
    error, _ = await score_once(home, ensemble(sound, failing))
    assert isinstance(error, CallFailedError | BackendError)
    result, _ = await score_once(home, ensemble(sound, failing))
    assert result.score == Score(7, 10, 7, 10)
    assert (len(sound.calls), len(failing.calls)) == (1, 2)


async def test_refusal_is_final(home):
    sound, failing = scorer("a", 4), scorer("b", UnusableAnswerError("no"))
    first, _ = await score_once(home, ensemble(sound, failing))
    again, _ = await score_once(home, ensemble(sound, failing))
    assert again.score == first.score
    assert (len(sound.calls), len(failing.calls)) == (1, 1)


async def test_finished_call_is_stored_while_another_member_hangs(home):
    class Hanging(Scripted):
        async def score(self, before, after, instruction):
            self.calls.append(1)
            await asyncio.sleep(3600)

    sound, hanging = scorer("a", 4), Hanging("b")
    with calls_of(home, ensemble(sound, hanging)) as calls:
        task = asyncio.create_task(calls.score(SITE, None, tiny_image(), "a cat"))
        while not calls.ledger():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    result, _ = await score_once(home, ensemble(sound, scorer("b", 8)))
    assert result.score.edit_success == 7
    assert len(sound.calls) == 1


async def test_new_member_costs_only_its_own_calls(home):
    sound = scorer("a", 4)
    await score_once(home, sound)
    result, _ = await score_once(home, ensemble(sound, scorer("b", 8)))
    assert result.score.edit_success == 7
    assert len(sound.calls) == 1


async def run_and_score(home, agents):
    prompts = [prompt_row(f"p{n}") for n in range(3)]
    plans = [row for prompt in prompts for row in plan_rows_for(prompt, f"{prompt.prompt_id} one")]
    loop = LoopSettings(t_max=2, on_exhausted="best")
    result = await run_shard(prompts, plans, agents, home, SHARD, loop, LIMITS)
    return result, await score_shard(
        result.attempts, result.trajectories, plans, agents, home, SHARD, LIMITS
    )


async def test_rows_of_a_shard(home):
    refusing = scorer("b", UnusableAnswerError("no"), 8)
    _, scored = await run_and_score(home, roles(scorer=ensemble(scorer("a", 4, 4, 4), refusing)))
    assert len(scored.scores) == 3 and len(scored.members) == 6
    assert {row.scorer for row in scored.scores} == {
        f"ensemble/{ensemble(scorer('a'), refusing).model}"
    }
    by_member = {(row.prompt_id, row.member): row for row in scored.members}
    refused = [row for row in scored.members if row.refusal]
    assert len(refused) == 1 and refused[0].overall is None and refused[0].member == "b"
    for row in scored.scores:
        mine = [by_member[row.prompt_id, name] for name in "ab"]
        scored_by = [member for member in mine if member.refusal is None]
        weight = sum(member.weight for member in scored_by)
        mean = sum(member.edit_success * member.weight for member in scored_by) / weight
        assert row.edit_success == pytest.approx(mean)


async def test_scores_of_the_loop_are_reused(home):
    from tests.inference.scripted_world import ScriptedCritic

    critic = ScriptedCritic(verdicts={f"p{n} one": [reject("again")] * 2 for n in range(3)})
    one, other = scorer("a"), scorer("b")
    result, scored = await run_and_score(home, roles(critic=critic, scorer=ensemble(one, other)))
    assert len(result.attempts) == 6
    assert len(one.calls) == len(other.calls) == 6
    assert [call.cached for call in scored.calls] == [True] * 12
    assert len(scored.members) == 12


def test_model_name_has_members_weights_and_models():
    one, other = scorer("a"), scorer("b")
    assert ensemble(one, other).model.startswith("a*1+b*3-")
    assert ensemble(other, one, weights=(3.0, 1.0)).model == ensemble(one, other).model
    assert ensemble(one, other, weights=(1.0, 2.0)).model != ensemble(one, other).model
    assert ensemble(one, scorer("b", model="2")).model != ensemble(one, other).model


SKETCH = {"planner": "sketch", "generator": "sketch", "critic": "sketch"}


def backends(scorer, **more):
    return Backends.model_validate({"roles": SKETCH | {"scorer": scorer}} | more)


def test_profile_binds_members(home, tmp_path):
    members = {"sketch": 1, "editscore": 2}
    settings = backends("ensemble", ensemble={"members": members})
    assert settings.bound == {
        "sketch": ["planner", "generator", "critic", "scorer"],
        "editscore": ["scorer"],
    }
    built = settings.build(home).scorer
    assert [(member.name, member.weight) for member in built.members] == [
        ("editscore", 2.0),
        ("sketch", 1.0),
    ]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (None, "name its members and their weights"),
        ({"sketch": 1}, "at least 2"),
        ({"sketch": 1, "openai": 0}, "greater than 0"),
        ({"sketch": 1, "checkpoint": 1}, "no scorer checkpoint; editscore, gemini, openai, sketch"),
    ],
)
def test_invalid_ensemble_settings(members, message):
    settings = {"ensemble": {"members": members}} if members else {}
    with pytest.raises(ValidationError, match=message):
        backends("ensemble", **settings)


class Logged:
    """Logs each call to a file; with `hangs`, it never returns."""

    model = "1"

    def __init__(self, name: str, log: Path, hangs: bool = False) -> None:
        self.backend, self._hangs = name, hangs
        self._log = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    async def score(self, before, after, instruction):
        os.write(self._log, f"{self.backend}\n".encode())
        if self._hangs:
            await asyncio.sleep(3600)
        return Score(5, 5, 5, 5)


def score_in_process(folder: Path, log: Path, hangs: bool) -> None:
    both = ensemble(Logged("a", log), Logged("b", log, hangs))
    asyncio.run(score_once(Home(folder), both))


@pytest.mark.slow
def test_finished_call_of_a_killed_process_is_stored(tmp_path):
    log, home = tmp_path / "log", Home(tmp_path / "home")
    process = PROCESSES.Process(target=score_in_process, args=(tmp_path / "home", log, True))
    process.start()
    while not list(home.journal("scores", SHARD).records()):
        time.sleep(0.01)
    process.kill()
    process.join()
    score_in_process(tmp_path / "home", log, False)
    assert sorted(log.read_text().split()) == ["a", "b", "b"]
