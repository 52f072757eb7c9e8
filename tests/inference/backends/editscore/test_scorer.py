"""EditScore as a scorer: grades of an overfitted model, errors of a random one, identity."""

import os

import pytest

from inference.backends.editscore.backend import EditScoreScorer, EditScoreSettings, mean_ratings
from inference.backends.providers.structured import CompletionResult
from inference.roles import BackendError, Score, Scorer, UnusableAnswerError
from inference.settings import Limits, LoopSettings
from inference.shard import run_shard, score_shard
from tests.helpers.tiny_editscore import settings
from tests.inference.scripted_world import SHARD, plan_rows_for, prompt_row, roles
from warehouse import EncodedImage

# Ratings of 20, 15, 25 and 10 out of 25.
GRADES = Score(8.0, 6.0, 10.0, 4.0)
GOAL = "Draw a cat."


@pytest.fixture(scope="module")
def scorer(overfitted, prompts):
    return EditScoreScorer(settings(overfitted, prompts=prompts))


@pytest.fixture
def random(model):
    return EditScoreScorer(settings(model, max_new_tokens=8))


async def test_ratings_become_grades(scorer):
    assert isinstance(scorer, Scorer)
    white = EncodedImage.white((96, 96))
    score = await scorer.score(white, white, GOAL)
    assert score == GRADES
    assert (score.semantics, score.quality) == (6.0, 4.0)
    assert await scorer.score(None, white, GOAL) == GRADES


async def test_a_shard_is_scored_and_accounted_for(scorer, home):
    prompts = [prompt_row(f"p{n}") for n in range(3)]
    plans = [row for prompt in prompts for row in plan_rows_for(prompt, GOAL, "Add a dog.")]
    bound, limits = roles(scorer=scorer), Limits(backoff_seconds=0)
    run = await run_shard(prompts, plans, bound, home, SHARD, LoopSettings(), limits)
    scored = await score_shard(run.attempts, run.trajectories, plans, bound, home, SHARD, limits)
    assert len(scored.scores) == len(run.attempts) == 6
    assert {row.scorer for row in scored.scores} == {f"editscore/{scorer.model}"}
    assert all(row.overall == pytest.approx(24**0.5) for row in scored.scores)
    assert all(call.input_tokens and call.output_tokens for call in scored.calls)
    assert {call.cost_usd for call in scored.calls} == {0.0}


async def test_unusable_answers_quarantine_their_prompts(random, home):
    prompt = prompt_row()
    plans, bound = plan_rows_for(prompt, GOAL), roles(scorer=random)
    limits = Limits(failure_share=1)
    run = await run_shard([prompt], plans, bound, home, SHARD, LoopSettings(), limits)
    scored = await score_shard(run.attempts, run.trajectories, plans, bound, home, SHARD, limits)
    assert not scored.scores
    assert "none of 2 answers about semantics can be read" in scored.quarantine[0].reason


def test_the_name_depends_on_what_grades_depend_on():
    names = [
        EditScoreScorer(EditScoreSettings(**change)).model
        for change in (
            {},
            {"samples": 1},
            {"temperature": 0.5},
            {"seed": 7},
            {"max_new_tokens": 8},
            {"adapter": "someone/else"},
            {"revision": "abc"},
            {"dtype": "float16"},
        )
    ]
    assert len(set(names)) == len(names)
    assert names[0].startswith("EditScore-Qwen3-VL-8B-Instruct@main-")
    assert EditScoreScorer(EditScoreSettings(device="cpu", batch=1)).model == names[0]


def test_other_prompts_and_changed_weights_change_the_name(model, prompts):
    first = EditScoreScorer(settings(model)).model
    assert EditScoreScorer(settings(model)).model == first
    assert EditScoreScorer(settings(model, prompts=prompts)).model != first
    os.utime(model / "config.json", (1, 1))
    assert EditScoreScorer(settings(model)).model != first


def test_missing_prompts_are_one_line(model, tmp_path):
    with pytest.raises(BackendError, match=r"semantics.txt cannot be read: put the semantics"):
        EditScoreScorer(settings(model, prompts=tmp_path))
    (tmp_path / "semantics.txt").write_text("Is it done?")
    (tmp_path / "quality.txt").write_text("Is it clean?")
    with pytest.raises(BackendError, match=r"semantics.txt: put <instruction> where"):
        EditScoreScorer(settings(model, prompts=tmp_path))


def grades(*texts):
    return mean_ratings("quality", [CompletionResult(text) for text in texts])


def test_ratings_become_the_means_of_grades_out_of_ten():
    assert grades('{"reasoning": "good", "score": [25, 5]}') == (10, 2)
    assert grades('{"score": [25, 5]}', '{"score": [15, 10]}') == (8, 3)
    for repaired in (
        'Here it is:\n```json\n{"reasoning": "good", "score": [20, 10]}\n```',
        "{'reasoning': 'it is good', 'score': [20, 10],}",
        '{"reasoning": "a "red" cat", "score": [20, 10], "other": 1}',
    ):
        assert grades(repaired) == (8, 4)


def test_answers_without_two_ratings_are_ignored():
    none = "none of 1 answers about quality can be read; the first: "
    for text in (
        "",
        "a good picture, 20 and 10",
        '{"reasoning": "good", "score": [20]}',
        '{"reasoning": "good", "score": 20}',
        '{"reasoning": "good", "score": [20, 10, 5]}',
        '{"reasoning": "good", "score": [26, 10]}',
        '{"reasoning": "good", "score": [-1, 10]}',
        '{"reasoning": "good", "score": [NaN, 10]}',
        '{"reasoning": "good"}',
    ):
        assert grades(text, '{"score": [20, 10]}') == (8, 4)
        with pytest.raises(UnusableAnswerError, match=none):
            grades(text)
    cut_off = CompletionResult('{"score": [20, 1', is_complete=False)
    with pytest.raises(UnusableAnswerError, match="cut off"):
        mean_ratings("quality", [cut_off])
