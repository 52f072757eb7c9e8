"""`retrain_when_grown` through Dagster's own tick: rows that changed, runs that failed."""

import shutil
from pathlib import Path

import pytest

from assets.checkpoints import training
from assets.checkpoints.recipes import planner_sft
from assets.core.foundry import FoundryResource
from assets.core.node import NODES
from assets.curation.exports.publisher import export_all
from assets.evaluation.systems import newest_system
from dagster_project import retraining
from dagster_project.definitions import definitions
from dagster_project.stages import is_up_to_date
from schemas import FoundryError
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT
from tests.dagster_project.conftest import copy_lake, tiny_foundry
from tests.helpers.fake_launcher import FakeLauncher
from tests.helpers.ticks import materialize, run_job, sensor_tick
from training.registry import CheckpointRegistry

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


@pytest.fixture
def broken(monkeypatch):
    """Every training fails."""

    async def run_job(*_):
        raise FoundryError("out of memory")

    monkeypatch.setattr(training, "run_job", run_job)


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


def tick(foundry, instance):
    """Requested runs, and what the tick says of the planner."""
    ticked = sensor_tick("retrain_when_grown", foundry, instance)
    said = (ticked.skip_message or "").partition(";")[0].removeprefix("retrain_planner: ")
    assert bool(ticked.run_requests) == (ticked.skip_message is None)
    return ticked.run_requests, said


def run(request, foundry, instance):
    return run_job(request.job_name, foundry, instance, tags=request.tags, raise_on_error=False)


def test_without_a_section_training_it_says_so(foundry, instance, tmp_path):
    plain = tiny_foundry(tmp_path)
    assert tick(plain, instance)[1] == "profile tiny has no section training"


def test_rows_that_nothing_was_trained_on_count(foundry, instance):
    (request,), _ = tick(foundry, instance)
    assert request.job_name == "retrain_planner"
    count = len(foundry.rows(PLANNER_SFT))
    foundry.home.lake.write(PLANNER_SFT, foundry.rows(PLANNER_SFT)[: NEEDED - 1])
    export(foundry)
    assert count >= NEEDED and tick(foundry, instance) == ([], "4 of 5 rows changed")


def test_changed_content_and_rows_that_are_gone_count(foundry, instance, launcher):
    train(foundry, instance)
    assert tick(foundry, instance) == ([], "0 of 5 rows changed")
    rows = foundry.rows(PLANNER_SFT)
    foundry.home.lake.write(PLANNER_SFT, rows[3:])
    export(foundry)
    assert tick(foundry, instance) == ([], "3 of 5 rows changed")
    foundry.home.lake.write(PLANNER_SFT, rows)
    change(foundry, 2, "other@2")
    export(foundry)
    assert tick(foundry, instance) == ([], "2 of 5 rows changed")
    change(foundry, NEEDED, "other@3")
    assert tick(foundry, instance) == ([], "5 of 5 rows changed, waits for `exports`")
    export(foundry)
    assert [each.job_name for each in tick(foundry, instance)[0]] == ["retrain_planner"]


def test_what_is_trained_while_rows_change_is_evaluated_and_trained_again(
    foundry, instance, launcher, monkeypatch
):
    async def run_job(*args):
        change(foundry, NEEDED, "other@2")
        export(foundry)
        return await launcher.run_job(*args)

    monkeypatch.setattr(training, "run_job", run_job)
    trained = planner_sft(foundry).version
    assert tick(foundry, instance)[0]
    train(foundry, instance)
    assert planner_sft(foundry).version != trained
    assert newest_system(foundry).planner == f"planner_sft_checkpoint@{trained}"
    assert not is_up_to_date(NODES["planner_sft_checkpoint"], foundry, instance)
    (request,), _ = tick(foundry, instance)
    assert request.tags[retraining.RECIPE_TAG] == planner_sft(foundry).version


@pytest.mark.long
def test_without_a_record_of_them_rows_are_counted(foundry, instance, launcher):
    train(foundry, instance)
    tick(foundry, instance)
    shutil.rmtree(foundry.home.local / "trained_rows")
    rows = change(foundry, NEEDED, "other@2")
    export(foundry)
    assert tick(foundry, instance)[1] == "0 of 5 rows changed"
    more = [row.model_copy(update={"row_id": f"{row.row_id}-again"}) for row in rows[:2]]
    foundry.home.lake.write(PLANNER_SFT, [*rows, *more])
    export(foundry)
    assert tick(foundry, instance)[1] == "2 of 5 rows changed"


@pytest.mark.long
def test_rows_of_an_earlier_checkpoint_are_not_trained_on_again(foundry, instance, launcher):
    train(foundry, instance)
    tick(foundry, instance)
    before = change(foundry, NEEDED, "other@2")
    export(foundry)
    train(foundry, instance)
    tick(foundry, instance)
    foundry.home.lake.write(PLANNER_SFT, before)
    export(foundry)
    assert tick(foundry, instance) == ([], "5 of 5 rows changed, trained on these before")
    records = foundry.home.local / "trained_rows" / "planner_sft_checkpoint"
    assert len(list(records.iterdir())) == 2


def test_a_failed_run_is_started_again_after_a_pause_at_most_three_times(
    foundry, instance, broken, monkeypatch
):
    keys = set()
    for _ in range(3):
        monkeypatch.setattr(retraining, "_PAUSE_SECONDS", 0)
        (request,), _ = tick(foundry, instance)
        keys.add(request.run_key)
        assert not run(request, foundry, instance).success
        monkeypatch.setattr(retraining, "_PAUSE_SECONDS", 600)
        requests, said = tick(foundry, instance)
        assert not requests and " rows changed, " in said
        assert len(keys) == 3 or "failed, the next starts in " in said
    assert len(keys) == 3 and ", 3 runs on these failed, last " in said
    change(foundry, NEEDED, "other@2")
    export(foundry)
    assert tick(foundry, instance)[0], "other rows begin anew"


def test_a_run_whose_evaluation_failed_is_started_again(foundry, instance, launcher, monkeypatch):
    (request,), _ = tick(foundry, instance)
    train(foundry, instance)
    job = definitions(foundry).resolve_job_def(request.job_name)
    instance.report_run_failed(instance.create_run_for_job(job, tags=request.tags))
    assert "0 of 5 rows changed, run " in tick(foundry, instance)[1]
    monkeypatch.setattr(retraining, "_PAUSE_SECONDS", 0)
    (again,), _ = tick(foundry, instance)
    assert again.job_name == request.job_name and again.run_key != request.run_key
    CheckpointRegistry(foundry.home).reject(
        "planner_sft_checkpoint", request.tags[retraining.RECIPE_TAG], "worse"
    )
    assert tick(foundry, instance) == ([], "0 of 5 rows changed")


def test_one_run_at_a_time_and_none_after_it_was_canceled(foundry, instance):
    (request,), _ = tick(foundry, instance)
    job = definitions(foundry).resolve_job_def(request.job_name)
    queued = instance.create_run_for_job(job, tags=request.tags)
    assert tick(foundry, instance)[1].endswith(f"run {queued.run_id} is not finished")
    instance.report_run_canceled(queued)
    assert tick(foundry, instance)[1].endswith(f"run {queued.run_id} was canceled")
