"""Commands that are killed or interrupted, files that get lost: the next run repairs them."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import dagster as dg
import psutil
import pytest

from dagster_project.instance import NO_RETRIES, RUNNER, RUNNER_TAG, open_instance
from dagster_project.run import run_lineage
from schemas import StorageError
from schemas.curation import CRITIC_SFT, STEPS
from schemas.trajectories import ATTEMPTS, SCORES
from tests.helpers.command import INTERLEAVE
from warehouse import Home

pytestmark = pytest.mark.slow


def ignore_sigint():
    """As shells start `interleave run &`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.fixture(params=[None], ids=[""])
def started(foundry, request):
    """A command that processes two shards in two processes, once both have started."""
    where = ["--profile", foundry.profile, "--home", foundry.root]
    journals = Path(foundry.root, "journals", "trajectories")
    process = subprocess.Popen(
        [*INTERLEAVE, "run", *where, "--size", "two", "--jobs", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=request.param,
    )
    while len(list(journals.glob("*.jsonl"))) < 2:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def all_exit(processes):
    _, alive = psutil.wait_procs(processes, timeout=20)
    return not alive


@pytest.mark.long
def test_workers_end_with_a_killed_command_and_the_next_run_finishes(foundry, started):
    workers = psutil.Process(started.pid).children(recursive=True)
    started.kill()
    assert len(workers) >= 2 and all_exit(workers)
    with open_instance(foundry.home) as instance:
        run_lineage(foundry, instance, 2, ["+scores"])
        assert all(run.is_finished for run in instance.get_runs())
        for pool in ("generator", "agents"):
            info = instance.event_log_storage.get_concurrency_info(pool)
            assert info.active_slot_count == 0
    for journal in Path(foundry.root, "journals").rglob("*.jsonl"):
        lines = journal.read_text().splitlines()
        assert len(lines) == len(set(lines))
    assert foundry.home.lake.partitions(SCORES) == ["sketchbook-0000", "sketchbook-0001"]


@pytest.mark.long
@pytest.mark.parametrize("started", [ignore_sigint], indirect=True)
def test_term_ends_the_command_and_its_workers(started):
    workers = psutil.Process(started.pid).children(recursive=True)
    started.terminate()
    assert started.wait(timeout=20) != 0 and all_exit(workers)


@pytest.mark.long
def test_ctrl_c_ends_the_command_and_its_workers_quietly(started):
    workers = psutil.Process(started.pid).children(recursive=True)
    os.killpg(started.pid, signal.SIGINT)
    assert started.wait(timeout=20) != 0 and all_exit(workers)
    assert "Traceback" not in started.stderr.read()


@dg.job
def empty_job():
    """A job to create runs of."""


def test_runs_of_dead_processes_are_closed_and_those_of_live_ones_are_not(foundry):
    status = dg.DagsterRunStatus
    with open_instance(foundry.home) as instance:

        def run(state, runner):
            return instance.create_run_for_job(empty_job, status=state, tags={RUNNER_TAG: runner})

        runs = {
            state: (run(state, "gone"), run(state, RUNNER))
            for state in (status.NOT_STARTED, status.STARTED)
        }
        with open_instance(foundry.home) as other:
            for state, (dead, ours) in runs.items():
                assert other.get_run_by_id(dead.run_id).status == status.FAILURE
                assert other.get_run_by_id(ours.run_id).status == state


def test_the_daemon_starts_a_run_that_died_again_unless_it_is_a_commands(foundry):
    with open_instance(foundry.home) as instance:
        assert not instance.run_retries_retry_on_asset_or_op_failure
        for tags, again in (({}, "true"), (NO_RETRIES, "false")):
            status = dg.DagsterRunStatus.STARTED
            died = instance.create_run_for_job(empty_job, status=status, tags=tags)
            instance.report_run_failed(died)
            assert instance.get_run_by_id(died.run_id).tags["dagster/will_retry"] == again


def test_what_is_lost_or_damaged_is_made_again(sampled, instance):
    lake, before = sampled.home.lake, sampled.home.lake.content_hash(CRITIC_SFT)

    lake.delete(CRITIC_SFT, "all")
    Path(lake.write(SCORES, [], "sketchbook-0000").url).write_bytes(b"no Parquet")
    shutil.rmtree(sampled.home.exports / "verl")

    run_lineage(sampled, instance, shards=1)
    assert lake.content_hash(CRITIC_SFT) == before
    assert lake.rows(SCORES) > 25
    assert (sampled.home.exports / "verl" / "critic_rl.parquet").is_file()
    assert not run_lineage(sampled, instance, shards=1).materialized


def test_a_damaged_table_is_one_line_and_a_lost_image_is_drawn_again(sampled, instance):
    lake = sampled.home.lake
    steps = Path(lake.glob(STEPS).replace("*", "all"))
    intact = steps.read_bytes()
    steps.write_bytes(intact[:40] + bytes(400) + intact[440:])
    lake.delete(CRITIC_SFT, "all")
    with pytest.raises(StorageError, match=r"steps/all/part-0.*is damaged.*verify --repair"):
        run_lineage(sampled, instance, 1, ["steps", "critic_sft"])
    steps.unlink()
    run_lineage(sampled, instance, 1, ["steps", "critic_sft"])
    assert steps.read_bytes() == intact and lake.partitions(CRITIC_SFT)

    attempts = lake.read(ATTEMPTS)
    lost = Path(sampled.home.images.url(attempts["image"][0].as_py()))
    lost.unlink()
    run_lineage(sampled, instance, 1, ["trajectories"], force=True)
    assert lost.is_file() and lake.read(ATTEMPTS)["image"].equals(attempts["image"])


def test_an_unusable_dagster_storage_is_one_line(profile, tmp_path):
    home = Home(tmp_path / "lake")
    (home.dagster / "history").mkdir(parents=True)
    (home.dagster / "history" / "runs.db").write_bytes(b"not a database" * 100)
    done = subprocess.run(
        [*INTERLEAVE, "run", "--profile", profile, "--home", str(home.root)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1 and "not a database" in done.stderr
