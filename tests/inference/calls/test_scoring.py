"""Scores of two calls: journaled by themselves, repeated only where there is no answer."""

import asyncio
import multiprocessing
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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
    ScriptedScorer,
    plan_rows_for,
    prompt_row,
    roles,
    tiny_image,
)
from warehouse import Home

SITE = CallSite("p1", 1, 0)
LIMITS = Limits(backoff_seconds=0, tries=1, failure_share=1)
PROCESSES = multiprocessing.get_context("forkserver")


@dataclass
class Part(Scripted):
    """Semantics or quality; raises `errors` in turn first."""

    errors: list[Exception] = field(default_factory=list)

    async def score_semantics(self, before, after, instruction):
        self._note(before, after, instruction)
        return SemanticsGrades(4.0, 6.0)

    async def score_quality(self, after):
        self._note(after)
        return QualityGrades(9.0, 8.0)

    def _note(self, *shown):
        self.calls.append(shown)
        if len(self.calls) <= len(self.errors):
            raise self.errors[len(self.calls) - 1]


def two(semantics=None, quality=None, name="remote"):
    semantics = semantics or Part(name, "m-semantics")
    return TwoCallScorer(name, "m", semantics, quality or Part(name, "m-quality"))


async def score_once(home, scorer, site=SITE, before=None):
    with ModelCalls(home, "scores", SHARD, roles(scorer=scorer), LIMITS) as calls:
        try:
            return await calls.score(site, before, tiny_image(), "a cat"), calls.ledger()
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


async def test_answers_are_found_again(home):
    scorer = two()
    first, _ = await score_once(home, scorer)
    again, ledger = await score_once(home, scorer)
    assert again.score == first.score == await scorer.score(None, tiny_image(), "a cat")
    assert len(ledger) == 2 and len(scorer.semantics.calls) == 2  # the last one without a journal


async def test_scores_of_one_call_and_of_two_do_not_mix(home):
    await score_once(home, two())
    whole = ScriptedScorer("remote", "m")
    result, ledger = await score_once(home, whole)
    assert result.score == Score(10, 10, 10, 10) and len(whole.calls) == 1
    assert len({row.request_hash for row in ledger}) == 3


@pytest.mark.parametrize("failure", [RetryableError("busy"), BackendError("the budget is spent")])
async def test_only_the_call_that_failed_is_repeated(home, failure):
    scorer = two(quality=Part("remote", "m-quality", errors=[failure]))
    error, _ = await score_once(home, scorer)
    assert isinstance(error, CallFailedError | BackendError)
    result, _ = await score_once(home, scorer)
    assert result.score == Score(4.0, 6.0, 9.0, 8.0)
    assert (len(scorer.semantics.calls), len(scorer.quality.calls)) == (1, 2)


async def test_a_refusal_of_one_call_is_the_scores(home):
    refusal = UnusableAnswerError("no cats")
    scorer = two(Part("remote", "m-semantics", errors=[refusal]))
    error, ledger = await score_once(home, scorer)
    assert isinstance(error, UnusableAnswerError) and "no cats" in str(error)
    assert len(ledger) == 2
    again, _ = await score_once(home, scorer)
    assert isinstance(again, UnusableAnswerError) and len(scorer.semantics.calls) == 1


async def test_grades_out_of_range_are_refused(home):
    class Generous(Part):
        async def score_quality(self, after):
            return QualityGrades(11.0, 8.0)

    error, _ = await score_once(home, two(quality=Generous("remote", "m-quality")))
    assert "naturalness is 11.0" in str(error)


async def test_members_of_an_ensemble_make_two_calls_each(home):
    members = {"a": two(name="a"), "b": ScriptedScorer("b", grades=[8.0])}
    result, ledger = await score_once(home, Ensemble(members, {"a": 1.0, "b": 1.0}))
    assert result.score == Score(6.0, 8.0, 8.5, 9.0)
    assert len(ledger) == 3


@pytest.mark.parametrize(
    ("scorer", "calls", "members"),
    [
        (two(), "two", []),
        (ScriptedScorer(), None, []),
        (
            Ensemble({"a": two(name="a"), "b": ScriptedScorer("b")}, {"a": 1, "b": 1}),
            None,
            ["two", None],
        ),
    ],
)
async def test_rows_say_how_many_calls_made_a_score(home, scorer, calls, members):
    prompt = prompt_row()
    plans = plan_rows_for(prompt, "one")
    agents = roles(scorer=scorer)
    run = await run_shard([prompt], plans, agents, home, SHARD, LoopSettings(), LIMITS)
    tables = (run.attempts, run.trajectories, plans)
    scored = await score_shard(*tables, agents, home, SHARD, LIMITS)
    assert [row.calls for row in scored.scores] == [calls]
    assert [row.calls for row in scored.members] == members


class Logged:
    """Logs each call to a file; with `hangs`, it never returns."""

    backend = "remote"

    def __init__(self, part: str, log: Path, hangs: bool = False) -> None:
        self.model, self._hangs = part, hangs
        self._log = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    async def _answer(self, grades):
        os.write(self._log, f"{self.model}\n".encode())
        if self._hangs:
            await asyncio.sleep(3600)
        return grades

    async def score_semantics(self, before, after, instruction):
        return await self._answer(SemanticsGrades(5, 5))

    async def score_quality(self, after):
        return await self._answer(QualityGrades(5, 5))


def score_in_process(folder: Path, log: Path, hangs: bool) -> None:
    scorer = two(Logged("semantics", log), Logged("quality", log, hangs))
    asyncio.run(score_once(Home(folder), scorer))


@pytest.mark.slow
def test_a_kill_between_the_calls_repeats_only_the_unfinished_one(tmp_path):
    log, home = tmp_path / "log", Home(tmp_path / "home")
    process = PROCESSES.Process(target=score_in_process, args=(tmp_path / "home", log, True))
    process.start()
    while not list(home.journal("scores", SHARD).records()) or len(log.read_text().split()) < 2:
        time.sleep(0.01)
    process.kill()
    process.join()
    score_in_process(tmp_path / "home", log, False)
    assert sorted(log.read_text().split()) == ["quality", "quality", "semantics"]
