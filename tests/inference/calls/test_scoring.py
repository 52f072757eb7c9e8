"""Scores of two calls, and of ensembles: each call is journaled by itself."""

import asyncio
import multiprocessing
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import ValidationError

from inference.backends.factory import Backends
from inference.calls.ask import CallSite, ModelCalls
from inference.calls.retry import CallFailedError
from inference.calls.scoring import Ensemble, TwoCallScorer
from inference.roles import (
    BackendError,
    QualityGrades,
    RetryableError,
    Score,
    Scorer,
    SemanticsGrades,
    UnusableAnswerError,
)
from inference.settings import Limits, LoopSettings
from inference.shard import run_shard, score_shard
from tests.inference.scripted_world import (
    SHARD,
    Scripted,
    ScriptedCritic,
    ScriptedScorer,
    reject,
    roles,
    shard_inputs,
    tiny_image,
)
from warehouse import Home

SITE = CallSite("p1", 1, 0)
LIMITS = Limits(backoff_seconds=0, tries=1, failure_share=1)
PROCESSES = multiprocessing.get_context("forkserver")
REFUSAL = UnusableAnswerError("no cat here")


@dataclass
class Part(Scripted):
    """Semantics or quality; raises `errors` in turn first."""

    errors: list[Exception] = field(default_factory=list)
    quality: tuple[float, float] = (9.0, 8.0)

    async def score_semantics(self, before, after, instruction):
        self._note(before, after, instruction)
        return SemanticsGrades(4.0, 6.0)

    async def score_quality(self, after):
        self._note(after)
        return QualityGrades(*self.quality)

    def _note(self, *shown):
        self.calls.append(shown)
        if len(self.calls) <= len(self.errors):
            raise self.errors[len(self.calls) - 1]


def two(semantics=None, quality=None, name="remote"):
    semantics = semantics or Part(name, "m-semantics")
    return TwoCallScorer(name, "m", semantics, quality or Part(name, "m-quality"))


def scorer(name, *grades, model="1"):
    return ScriptedScorer(name, model, grades=list(grades))


def ensemble(*scorers, weights=(1.0, 3.0)):
    named = {scorer.backend: scorer for scorer in scorers}
    return Ensemble(named, dict(zip(named, weights, strict=True)))


async def score_once(home, scorer, before=None):
    with ModelCalls(home, "scores", SHARD, roles(scorer=scorer), LIMITS) as calls:
        try:
            return await calls.score(SITE, before, tiny_image(), "a cat"), calls.ledger()
        except Exception as error:
            return error, calls.ledger()


async def test_semantics_sees_both_images_and_the_goal_and_quality_the_last_one(home):
    scorer, before = two(), tiny_image("before")
    assert isinstance(scorer, Scorer)
    result, ledger = await score_once(home, scorer, before=before)
    assert result.score == Score(4.0, 6.0, 9.0, 8.0)
    assert (result.score.semantics, result.score.quality) == (4.0, 8.0)
    assert result.score.overall == pytest.approx(32**0.5)
    assert scorer.semantics.calls == [(before, tiny_image(), "a cat")]
    assert scorer.quality.calls == [(tiny_image(),)]
    rows = {row.model: row for row in ledger}
    assert {row.role for row in ledger} == {"scorer"} and len(ledger) == 2
    assert (rows["m-semantics"].images, rows["m-quality"].images) == (2, 1)
    assert await score_once(home, scorer, before=before) == (result, ledger)
    assert result.score == await scorer.score(before, tiny_image(), "a cat"), "without a journal"
    assert len(scorer.semantics.calls) == 2


async def test_scores_of_one_call_and_of_two_do_not_mix(home):
    await score_once(home, two())
    whole = ScriptedScorer("remote", "m")
    result, ledger = await score_once(home, whole)
    assert result.score == Score(10, 10, 10, 10) and len(whole.calls) == 1
    assert len({row.request_hash for row in ledger}) == 3


async def test_only_the_call_that_failed_is_repeated(tmp_path):
    for error in (RetryableError("busy"), BackendError("the budget is spent")):
        parts = two(quality=Part("remote", "m-quality", errors=[error]))
        both = ensemble(scorer("a", 4), scorer("b", error, 8))
        cases = [
            (parts, parts.semantics, parts.quality, Score(4.0, 6.0, 9.0, 8.0)),
            (both, *(member.scorer for member in both.members), Score(7, 10, 7, 10)),
        ]
        for tried, sound, failing, expected in cases:
            home = Home(tmp_path / f"{type(tried).__name__}-{type(error).__name__}")
            failure, _ = await score_once(home, tried)
            assert isinstance(failure, CallFailedError | BackendError)
            assert (await score_once(home, tried))[0].score == expected
            assert (len(sound.calls), len(failing.calls)) == (1, 2)


async def test_a_refusal_of_one_call_is_the_scores(home):
    refusing = two(Part("remote", "m-semantics", errors=[REFUSAL]))
    for _ in range(2):
        error, ledger = await score_once(home, refusing)
        assert isinstance(error, UnusableAnswerError) and "no cat here" in str(error)
        assert len(ledger) == 2 and len(refusing.semantics.calls) == 1


async def test_defect_9_grades_out_of_range_are_refused(home):
    generous = Part("remote", "m-quality", quality=(11.0, 8.0))
    wrong = [scorer(str(grade), grade) for grade in (-1.0, 11.0, float("nan"))]
    for tried, grade in zip(
        [two(quality=generous), *wrong], ("11.0", "-1.0", "11.0", "nan"), strict=True
    ):
        error, _ = await score_once(home, tried)
        assert isinstance(error, UnusableAnswerError)
        assert f"is {grade}, not a grade from 0 to 10" in str(error)


async def test_an_ensembles_score_is_the_weighted_mean_of_each_grade(home):
    @dataclass
    class Fixed(Scripted):
        grades: tuple[float, ...] = ()

        async def score(self, before, after, instruction):
            return Score(*self.grades)

    both = ensemble(Fixed("a", grades=(10, 4, 8, 0)), Fixed("b", grades=(2, 8, 8, 4)))
    assert isinstance(both, Scorer)
    score = await both.score(None, tiny_image(), "a cat")
    assert score == Score(4.0, 7.0, 8.0, 3.0)
    assert (score.semantics, score.quality, score.overall) == (4.0, 3.0, 12**0.5)
    result, ledger = await score_once(home, ensemble(two(name="a"), scorer("b", 8.0)))
    assert result.score == Score(7.0, 9.0, 8.25, 9.5)
    calls = {(call.role, call.backend, call.model) for call in ledger}
    assert calls == {
        ("scorer", "a", "m-semantics"),
        ("scorer", "a", "m-quality"),
        ("scorer", "b", "1"),
    }


async def test_a_refusal_is_final_and_no_part_of_the_mean(home):
    refusing, sound = scorer("a", REFUSAL), scorer("b", 6)
    for _ in range(2):
        result, _ = await score_once(home, ensemble(refusing, sound))
        assert result.score == Score(6, 10, 6, 10)
        refused, scored = result.members
        assert refused.score is None and refused.refusal.endswith("no cat here")
        assert scored.score == result.score and scored.refusal is None
        assert len(refusing.calls) == len(sound.calls) == 1
    result, _ = await score_once(home, ensemble(sound, scorer("c", 10)))
    assert result.score.edit_success == 9, "another member costs its own calls only"
    assert len(sound.calls) == 1


async def test_refusal_of_all_members_is_an_error(home):
    both = ensemble(scorer("a", REFUSAL), scorer("b", UnusableAnswerError("no dog")))
    error, ledger = await score_once(home, both)
    assert isinstance(error, UnusableAnswerError)
    assert "no cat" in str(error) and "no dog" in str(error)
    assert len(ledger) == 2


async def run_and_score(home, agents, names=("p0", "p1", "p2")):
    prompts, plans = shard_inputs(names, "one")
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


async def test_rows_say_how_many_calls_made_a_score(tmp_path):
    mixed = ensemble(two(name="a"), ScriptedScorer("b"))
    cases = [(two(), "two", []), (ScriptedScorer(), None, []), (mixed, None, ["two", None])]
    for number, (tried, calls, members) in enumerate(cases):
        home = Home(tmp_path / str(number))
        _, scored = await run_and_score(home, roles(scorer=tried), ["p1"])
        assert [row.calls for row in scored.scores] == [calls]
        assert [row.calls for row in scored.members] == members


async def test_scores_of_the_loop_are_reused(home):
    critic = ScriptedCritic(verdicts={f"p{n} one": [reject("again")] * 2 for n in range(3)})
    one, other = scorer("a"), scorer("b")
    agents = roles(critic=critic, scorer=ensemble(one, other))
    result, scored = await run_and_score(home, agents)
    assert len(result.attempts) == 6
    assert len(one.calls) == len(other.calls) == 6
    copies = [(call.cached, call.asset, call.cost_usd, call.seconds) for call in scored.calls]
    assert copies == [(True, "scores", 0, 0)] * 12
    assert {call.call_id for call in scored.calls}.isdisjoint(call.call_id for call in result.calls)
    assert (await run_and_score(home, agents))[1] == scored
    assert len(scored.members) == 12


def test_model_name_has_members_weights_and_models():
    one, other = scorer("a"), scorer("b")
    assert ensemble(one, other).model.startswith("a*1+b*3-")
    assert ensemble(other, one, weights=(3.0, 1.0)).model == ensemble(one, other).model
    assert ensemble(one, other, weights=(1.0, 2.0)).model != ensemble(one, other).model
    assert ensemble(one, scorer("b", model="2")).model != ensemble(one, other).model


def backends(members):
    bound = dict.fromkeys(("planner", "generator", "critic"), "sketch") | {"scorer": "ensemble"}
    settings = {"ensemble": {"members": members}} if members else {}
    return Backends.model_validate({"roles": bound} | settings)


def test_profile_binds_members(home):
    settings = backends({"sketch": 1, "editscore": 2})
    assert settings.bound == {
        "sketch": ["planner", "generator", "critic", "scorer"],
        "editscore": ["scorer"],
    }
    members = [(member.name, member.weight) for member in settings.build(home).scorer.members]
    assert members == [("editscore", 2.0), ("sketch", 1.0)]


def test_invalid_ensemble_settings():
    for members, message in (
        (None, "name its members and their weights"),
        ({"sketch": 1}, "at least 2"),
        ({"sketch": 1, "openai": 0}, "greater than 0"),
        ({"sketch": 1, "checkpoint": 1}, "no scorer checkpoint; editscore, gemini, openai, sketch"),
    ):
        with pytest.raises(ValidationError, match=message):
            backends(members)


class Logged:
    """A scorer, or a part of one, that logs each call to a file; with `hangs`, it never returns."""

    def __init__(self, name: str, log: Path, hangs: bool = False) -> None:
        self.backend, self.model, self._hangs = name, name, hangs
        self._log = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    async def _answer(self, answer):
        os.write(self._log, f"{self.model}\n".encode())
        if self._hangs:
            await asyncio.sleep(3600)
        return answer

    async def score(self, before, after, instruction):
        return await self._answer(Score(5, 5, 5, 5))

    async def score_semantics(self, before, after, instruction):
        return await self._answer(SemanticsGrades(5, 5))

    async def score_quality(self, after):
        return await self._answer(QualityGrades(5, 5))


def score_in_process(folder: Path, log: Path, hangs: bool) -> None:
    parts = two(Logged("semantics", log), Logged("quality", log, hangs))
    asyncio.run(score_once(Home(folder), ensemble(Logged("whole", log), parts)))


@pytest.mark.slow
def test_a_kill_between_the_calls_repeats_only_the_unfinished_one(tmp_path):
    log, home = tmp_path / "log", Home(tmp_path / "home")
    process = PROCESSES.Process(target=score_in_process, args=(tmp_path / "home", log, True))
    process.start()
    while (
        len(list(home.journal("scores", SHARD).records())) < 2 or len(log.read_text().split()) < 3
    ):
        time.sleep(0.01)
    process.kill()
    process.join()
    score_in_process(tmp_path / "home", log, False)
    assert sorted(log.read_text().split()) == ["quality", "quality", "semantics", "whole"]
