"""EditScore as a scorer: grades of a taught model, refusals of a random one, identity."""

import asyncio
import os

import pytest

from inference.backends.checkpoint.encoding import AgentQuery
from inference.backends.editscore.scorer import EditScoreScorer
from inference.backends.editscore.settings import EditScoreSettings
from inference.roles import BackendError, Score, Scorer, UnusableAnswerError
from inference.settings import Limits, LoopSettings
from inference.shard import run_shard, score_shard
from schemas import BadImageError
from tests.helpers.tiny_editscore import settings
from tests.inference.scripted_world import SHARD, picture, planned, prompt_row, roles
from warehouse import EncodedImage

# Marks of 20, 15, 25 and 10 out of 25.
GRADES = Score(8.0, 6.0, 10.0, 4.0)
GOAL = "Draw a cat."


@pytest.fixture(scope="module")
def scorer(taught, prompts):
    return EditScoreScorer(settings(taught, prompts=prompts))


@pytest.fixture
def random(model):
    return EditScoreScorer(settings(model, max_new_tokens=8))


async def test_marks_become_grades(scorer):
    assert isinstance(scorer, Scorer)
    white = EncodedImage.white((96, 96))
    score = await scorer.score(white, white, GOAL)
    assert score == GRADES
    assert (score.semantics, score.quality) == (6.0, 4.0)
    assert await scorer.score(None, white, GOAL) == GRADES


async def test_a_model_that_gives_no_marks_is_a_bad_answer(random):
    with pytest.raises(
        UnusableAnswerError, match=r"none of 2 answers about semantics can be read; the fi"
    ):
        await random.score(None, picture(1), GOAL)


async def test_a_broken_picture_costs_the_others_nothing(scorer):
    good, bad = await asyncio.gather(
        scorer.score(None, EncodedImage.white((96, 96)), GOAL),
        scorer.score(None, EncodedImage(b"broken"), GOAL),
        return_exceptions=True,
    )
    assert good == GRADES
    assert isinstance(bad, BadImageError)


async def test_answers_are_of_the_request_alone(model):
    """Draws of random weights: any difference in a batch would show."""
    own = {"max_new_tokens": 12, "temperature": 2.0}
    questions = [
        AgentQuery("a cat " * n + "<image>" * n, (picture(n),) * n, 12, seed)
        for n in (1, 2)
        for seed in (42, 43, 44)
    ]
    one = EditScoreScorer(settings(model, batch=1, **own))._work(questions, lambda: False)
    many = EditScoreScorer(settings(model, **own))._work(questions, lambda: False)
    again = EditScoreScorer(settings(model, **own))._work(questions[::-1], lambda: False)
    assert [answer.text for answer in many] == [answer.text for answer in one]
    assert [answer.text for answer in again] == [answer.text for answer in one][::-1]
    assert len({answer.text for answer in one}) == len(questions)  # every seed draws its own


async def test_a_shard_is_scored_and_accounted_for(scorer, home):
    prompts = [prompt_row(f"p{n}") for n in range(3)]
    plans = [row for prompt in prompts for row in planned(prompt, GOAL, "Add a dog.")]
    players, limits = roles(scorer=scorer), Limits(backoff_seconds=0)
    told = await run_shard(prompts, plans, players, home, SHARD, LoopSettings(), limits)
    scored = await score_shard(
        told.attempts, told.trajectories, plans, players, home, SHARD, limits
    )
    assert len(scored.scores) == len(told.attempts) == 6
    assert {row.scorer for row in scored.scores} == {f"editscore/{scorer.model}"}
    assert all(row.overall == pytest.approx(24**0.5) for row in scored.scores)
    assert all(call.input_tokens and call.output_tokens for call in scored.calls)
    assert {call.cost_usd for call in scored.calls} == {0.0}


async def test_a_shard_that_is_refused_sets_its_prompts_aside(random, home):
    prompt = prompt_row()
    plans, players = planned(prompt, GOAL), roles(scorer=random)
    limits = Limits(failure_share=1)
    told = await run_shard([prompt], plans, players, home, SHARD, LoopSettings(), limits)
    scored = await score_shard(
        told.attempts, told.trajectories, plans, players, home, SHARD, limits
    )
    assert not scored.scores
    assert "can be read" in scored.quarantine[0].reason


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 1},
        {"temperature": 0.5},
        {"seed": 7},
        {"score_range": 10},
        {"max_new_tokens": 8},
        {"adapter": "someone/else"},
        {"revision": "abc"},
        {"dtype": "float16"},
    ],
)
def test_what_grades_depend_on_is_in_the_name(change):
    assert EditScoreScorer(EditScoreSettings(**change)).model != plain_model()


def plain_model():
    return EditScoreScorer(EditScoreSettings()).model


def test_where_and_how_many_at_once_is_not():
    assert EditScoreScorer(EditScoreSettings(device="cpu", batch=1)).model == plain_model()
    assert plain_model().startswith("EditScore-Qwen3-VL-8B-Instruct@main-")


def test_other_words_and_changed_weights_are_another_model(model, prompts):
    first = EditScoreScorer(settings(model)).model
    assert EditScoreScorer(settings(model)).model == first
    assert EditScoreScorer(settings(model, prompts=prompts)).model != first
    os.utime(model / "config.json", (1, 1))
    assert EditScoreScorer(settings(model)).model != first


def test_words_that_are_not_there_are_one_line(model, tmp_path):
    with pytest.raises(BackendError, match=r"semantics.txt cannot be read: put the words of"):
        EditScoreScorer(settings(model, prompts=tmp_path))
    (tmp_path / "semantics.txt").write_text("Is it done?")
    (tmp_path / "quality.txt").write_text("Is it clean?")
    with pytest.raises(BackendError, match=r"semantics.txt: put <instruction> where"):
        EditScoreScorer(settings(model, prompts=tmp_path))
