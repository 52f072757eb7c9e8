"""Branches of recorded trajectories, against the record and against runs with the same change."""

import asyncio

import pytest
from typer.testing import CliRunner

from assets.core.foundry import FoundryResource
from assets.trajectories.branches import BranchLoop, Change, play_branch
from dagster_project.cli.app import app
from inference import shard as engine
from inference.calls.ask import ModelCalls
from inference.events import AttemptJudged, plan_from_rows
from inference.roles import Verdict
from inference.settings import Limits, LoopSettings
from schemas import FoundryError
from schemas.prompts import PROMPTS, PromptRow
from schemas.trajectories import (
    ATTEMPTS,
    BRANCH_ATTEMPTS,
    BRANCHES,
    MODEL_CALLS,
    PLANS,
    TRAJECTORIES,
    PlanRow,
)
from tests.assets.evaluation.sample_lake import SHARD
from warehouse import Home

# What differs between a call and the same call from a journal.
TIMES = {"trajectory_id", "generator_seconds", "critic_seconds"}


@pytest.fixture
def foundry(recorded_foundry):
    return recorded_foundry


def attempts_of(foundry, table=ATTEMPTS, **columns):
    rows = [row.model_dump() for row in foundry.rows(table, SHARD)]
    return [row for row in rows if all(row[name] == value for name, value in columns.items())]


def without_times(rows):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def a_rejected(foundry):
    """A rejected first attempt of a first step whose trajectory has more steps."""
    rows = attempts_of(foundry)
    later = {row["trajectory_id"] for row in rows if row["step_number"] > 1}
    return next(
        row
        for row in rows
        if row["trajectory_id"] in later
        and (row["step_number"], row["iteration"], row["accepted"]) == (1, 0, False)
    )


def test_without_a_change_it_is_the_record_without_a_call(foundry):
    attempt = a_rejected(foundry)
    branch = play_branch(foundry, attempt["trajectory_id"], Change(1, 1))
    recorded = attempts_of(foundry, trajectory_id=attempt["trajectory_id"])
    stored = attempts_of(foundry, BRANCH_ATTEMPTS)
    assert without_times(stored) == without_times(recorded)
    assert branch.row.calls == 0 and branch.row.status == "complete"
    calls = foundry.home.lake.read(MODEL_CALLS).to_pylist()
    assert {row["cached"] for row in calls if row["asset"] == "branches"} == {True}


def test_from_the_first_attempt_on_it_is_a_run_with_that_seed(foundry, tmp_path):
    attempt = a_rejected(foundry)
    branch = play_branch(foundry, attempt["trajectory_id"], Change(1, 0, seed=7))
    own = attempt["prompt_id"]
    prompts = [r for r in foundry.rows(PROMPTS, SHARD) if r.prompt_id == own]
    plans = [r for r in foundry.rows(PLANS, SHARD) if r.prompt_id == own]
    fresh = run(prompts, plans, foundry.roles, Home(tmp_path / "fresh"), LoopSettings(seed=7))
    assert without_times(row.model_dump() for row in branch.attempts) == without_times(
        row.model_dump() for row in fresh.attempts
    )
    assert branch.row.calls > 0


def run(prompts: list[PromptRow], plans: list[PlanRow], roles, home, settings):
    return asyncio.run(engine.run_shard(prompts, plans, roles, home, SHARD, settings, Limits()))


def test_what_if_the_critic_had_accepted_here(foundry):
    attempt = a_rejected(foundry)
    branch = play_branch(foundry, attempt["trajectory_id"][:12], Change(1, 0, accept=True))
    first = [row for row in branch.attempts if row.step_number == 1]
    assert [(row.image, row.accepted, row.chosen) for row in first] == [
        (attempt["image"], True, True)
    ]
    following = next(row for row in branch.attempts if row.step_number > 1)
    assert following.source_image == attempt["image"]
    again = play_branch(foundry, attempt["trajectory_id"], Change(1, 0, accept=True))
    assert again.row == branch.row.model_copy(update={"calls": 0}), "its calls are journaled"


class RejectsAll:
    backend, model = "test", "1"

    async def judge(self, before, after, instruction, prompt):
        return Verdict(False, "", "no")


async def test_another_critic_judges_from_the_attempt_on(foundry):
    attempt = a_rejected(foundry)
    own = attempt["prompt_id"]
    plan = plan_from_rows([row for row in foundry.rows(PLANS, SHARD) if row.prompt_id == own])
    with ModelCalls(foundry.home, "branches", SHARD, foundry.roles, Limits()) as calls:
        change, critics = Change(1, 1, critic="other"), {"other": RejectsAll()}
        loop = BranchLoop(*(calls, LoopSettings(), own, plan), changes=(change,), critics=critics)
        judged = [event async for event in loop.events() if isinstance(event, AttemptJudged)]
    assert judged[0].verdict.reasoning == attempt["reasoning"], "before it the recorded one"
    assert {each.verdict.reasoning for each in judged[1:]} == {"no"}
    assert {each.call.model for each in judged[1:]} == {"1"}


def test_a_branch_of_a_branch_keeps_its_changes(foundry):
    attempt = a_rejected(foundry)
    prompt = "Draw a red circle in the center."
    drawn = play_branch(foundry, attempt["trajectory_id"], Change(1, 0, prompt=prompt))
    assert drawn.attempts[0].prompt == prompt and drawn.attempts[0].seed == attempt["seed"]
    accepted = play_branch(foundry, drawn.row.branch_id, Change(1, 0, accept=True))
    assert accepted.row.parent_id == drawn.row.branch_id
    assert accepted.row.trajectory_id == attempt["trajectory_id"]
    assert accepted.attempts[0].image == drawn.attempts[0].image and accepted.attempts[0].chosen
    stored = {row.branch_id for row in foundry.rows(BRANCHES, SHARD)}
    assert stored == {drawn.row.branch_id, accepted.row.branch_id}
    assert foundry.home.lake.rows(TRAJECTORIES) == 12, "branches are no rows of the bank"


def test_mistakes_are_one_line(foundry):
    attempt = a_rejected(foundry)
    with pytest.raises(FoundryError, match=r"no trajectories of shards .* begin with 'zz'"):
        play_branch(foundry, "zz", Change(1, 0))
    with pytest.raises(FoundryError, match=r"has no attempt 1 9: its attempts .* are 1 0, 1 1"):
        play_branch(foundry, attempt["trajectory_id"], Change(1, 9))
    other = FoundryResource(profile="sketch", root=foundry.root, sections='{"loop": {"seed": 3}}')
    with pytest.raises(FoundryError, match="was made with other settings or models than profile"):
        play_branch(other, attempt["trajectory_id"], Change(1, 0))


def test_the_command_prints_the_tree_and_writes_a_file(foundry, tmp_path):
    attempt, out = a_rejected(foundry), tmp_path / "branch.html"
    end = ["--home", foundry.root, "--out", str(out)]
    for change in (["1", "0", "--accept"], ["1", "1", "--seed", "4"]):
        done = CliRunner().invoke(app, ["branch", attempt["trajectory_id"], *change, *end])
        assert done.exit_code == 0, done.output
    assert f"trajectory {attempt['trajectory_id']}" in done.output
    assert "at 1 0: accepted; complete" in done.output and "at 1 1: seed 4" in done.output
    assert "<html" in out.read_text()
