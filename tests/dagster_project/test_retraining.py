"""`retrain_when_grown` through Dagster's own ticks: rows that changed, runs that failed."""

import asyncio
import shutil
from pathlib import Path

import pytest

from assets.checkpoints import training
from assets.checkpoints.recipes import planner_sft
from assets.core.foundry import FoundryResource
from assets.core.node import NODES
from assets.curation.exports.publisher import export_all
from assets.evaluation import assets as evaluation
from assets.evaluation.systems import newest_system
from dagster_project import retraining
from dagster_project.staleness import is_up_to_date
from schemas import FoundryError
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT
from schemas.training import CRITIC, PLANNER, RL_PLANNER, SFT_CRITIC
from tests.dagster_project.conftest import copy_lake, tiny_foundry
from tests.helpers.fake_launcher import FakeLauncher
from tests.helpers.ticks import ConditionTicks, materialize

pytestmark = pytest.mark.slow
NEEDED = 5


def trainable(folder):
    return tiny_foundry(folder, training={"retrain_after_rows": NEEDED})


@pytest.fixture(scope="module")
def exported(sample, tmp_path_factory):
    """A lake with exported rows for the planner, none for the critic, and nothing trained."""
    foundry = trainable(tmp_path_factory.mktemp("exported"))
    copy_lake(sample, Path(foundry.root))
    for table in (CRITIC_SFT, CRITIC_RL):
        foundry.home.lake.write(table, [])
    export(foundry)
    return Path(foundry.root)


@pytest.fixture
def foundry(tmp_path, exported) -> FoundryResource:
    foundry = trainable(tmp_path)
    copy_lake(exported, Path(foundry.root))
    return foundry


@pytest.fixture
def launcher(monkeypatch):
    launcher = FakeLauncher()
    monkeypatch.setattr(training, "run_job", launcher.run_job)
    return launcher


def export(foundry):
    export_all(foundry.home, foundry.settings.curation)


def change(foundry, count, name):
    """Other content in so many of the planner's rows, as many rows as before."""
    rows = foundry.rows(PLANNER_SFT)
    changed = [row.model_copy(update={"agent_prompt_version": name}) for row in rows[:count]]
    foundry.home.lake.write(PLANNER_SFT, [*changed, *rows[count:]])
    return rows


def train(foundry, instance):
    assert materialize(foundry, instance, ["base_model", "planner_sft_checkpoint"]).success


@pytest.fixture
def ticks(foundry, instance):
    """With a base model, after the first of its ticks."""
    assert materialize(foundry, instance, ["base_model"]).success
    ticks = ConditionTicks(foundry, instance)
    ticks.next()
    return ticks


def due(foundry):
    """Whether the planner is to be trained, and why."""
    retraining.record_rows(foundry)
    decision = retraining.decide(foundry, "planner")
    return decision.is_due, decision.why


def test_without_a_section_training_nothing_is_trained(tmp_path, instance):
    ticks = ConditionTicks(tiny_foundry(tmp_path), instance)
    ticks.next()
    assert not ticks.next(after_days=1)


def test_rows_that_nothing_was_trained_on_count(foundry, ticks):
    assert PLANNER not in ticks.next(), "by day"
    requested = ticks.next(after_days=1)
    followers = {RL_PLANNER, "rubrics", "evaluation", "promotion"}
    assert requested.keys() == {PLANNER, *followers}, "the critic has no rows"
    assert not ticks.next(), "once a night"
    count = len(foundry.rows(PLANNER_SFT))
    foundry.home.lake.write(PLANNER_SFT, foundry.rows(PLANNER_SFT)[: NEEDED - 1])
    export(foundry)
    assert count >= NEEDED and not ticks.next(after_days=1)


def test_changed_content_and_rows_that_are_gone_count(foundry, instance, launcher):
    train(foundry, instance)
    assert due(foundry) == (False, "0 of 5 rows changed")
    rows = foundry.rows(PLANNER_SFT)
    foundry.home.lake.write(PLANNER_SFT, rows[3:])
    export(foundry)
    assert due(foundry) == (False, "3 of 5 rows changed")
    foundry.home.lake.write(PLANNER_SFT, rows)
    change(foundry, 2, "other@2")
    export(foundry)
    assert due(foundry) == (False, "2 of 5 rows changed")
    change(foundry, NEEDED, "other@3")
    assert due(foundry) == (False, "5 of 5 rows changed, waits for `exports`")
    export(foundry)
    assert due(foundry) == (True, "5 of 5 rows changed")


def test_what_is_trained_while_rows_change_is_evaluated_and_trained_again(
    foundry, instance, launcher, monkeypatch
):
    async def run_job(*args):
        change(foundry, NEEDED, "other@2")
        export(foundry)
        return await launcher.run_job(*args)

    monkeypatch.setattr(training, "run_job", run_job)
    trained = planner_sft(foundry).version
    assert due(foundry)[0]
    train(foundry, instance)
    assert planner_sft(foundry).version != trained
    assert newest_system(foundry).planner == f"planner_sft_checkpoint@{trained}"
    assert not is_up_to_date(NODES["planner_sft_checkpoint"], foundry, instance)
    assert due(foundry)[0]


@pytest.mark.long
def test_without_a_record_of_them_rows_are_counted(foundry, instance, launcher):
    train(foundry, instance)
    due(foundry)
    shutil.rmtree(foundry.home.local / "trained_rows")
    rows = change(foundry, NEEDED, "other@2")
    export(foundry)
    assert due(foundry)[1] == "0 of 5 rows changed"
    more = [row.model_copy(update={"row_id": f"{row.row_id}-again"}) for row in rows[:2]]
    foundry.home.lake.write(PLANNER_SFT, [*rows, *more])
    export(foundry)
    assert due(foundry)[1] == "2 of 5 rows changed"


@pytest.mark.long
def test_rows_of_an_earlier_checkpoint_are_not_trained_on_again(foundry, instance, launcher):
    train(foundry, instance)
    due(foundry)
    before = change(foundry, NEEDED, "other@2")
    export(foundry)
    train(foundry, instance)
    due(foundry)
    foundry.home.lake.write(PLANNER_SFT, before)
    export(foundry)
    assert due(foundry) == (False, "5 of 5 rows changed, trained on these before")
    records = foundry.home.local / "trained_rows" / "planner_sft_checkpoint"
    assert len(list(records.iterdir())) == 2


def test_what_failed_is_tried_again_in_the_next_night(
    foundry, instance, ticks, launcher, monkeypatch
):
    def failing(*_):
        raise FoundryError("out of memory")

    def run(requested):
        materialize(foundry, instance, sorted(requested), raise_on_error=False)

    evaluated = {"evaluation", "promotion"}
    with monkeypatch.context() as patch:
        patch.setattr(training, "run_job", failing)
        for _every_night in range(2):
            requested = ticks.next(after_days=1)
            assert requested.keys() >= {PLANNER, *evaluated}
            run(requested)
            assert not ticks.next()
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "compare", failing)
        run(ticks.next(after_days=1))
    assert due(foundry) == (False, "0 of 5 rows changed"), "it is trained"
    assert ticks.next(after_days=1).keys() == evaluated


def test_nothing_is_requested_while_it_runs(foundry, instance, ticks, launcher, monkeypatch):
    requested = []

    async def run_job(*args):
        requested.append(await asyncio.to_thread(ticks.next, 1))
        return await launcher.run_job(*args)

    monkeypatch.setattr(training, "run_job", run_job)
    train(foundry, instance)
    assert requested == [{}]


def test_an_agent_that_is_due_while_another_is_evaluated_waits_for_it(
    sample, foundry, instance, ticks, launcher, monkeypatch
):
    complete, requested = tiny_foundry(sample.parent), []

    def compare(*_):
        for table in (CRITIC_SFT, CRITIC_RL):
            foundry.home.lake.write(table, complete.rows(table))
        export(foundry)
        requested.append(ticks.next(after_days=1))
        raise FoundryError("stopped")

    monkeypatch.setattr(evaluation, "compare", compare)
    materialize(foundry, instance, sorted(ticks.next(after_days=1)), raise_on_error=False)
    assert requested == [{}]
    followers = {"rubrics", "evaluation", "promotion"}
    assert ticks.next().keys() == {SFT_CRITIC, CRITIC, *followers}
