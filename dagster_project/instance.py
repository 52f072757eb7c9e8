"""The Dagster instance inside the lake's local folder: storage, pools, and runs that died.

`DAGSTER_HOME` is `$INTERLEAVE_HOME/dagster`, so the UI and the command line share one history.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import yaml
from filelock import FileLock, Timeout
from sqlalchemy.exc import DBAPIError

from assets.core.profile import ClusterSettings
from schemas import StorageError
from warehouse import Home
from warehouse.atomic import atomic_write
from warehouse.storage import storage_errors

from .instance_config import SHARDS_AT_ONCE, dagster_yaml, workspace_yaml, write_unless_edited

# A command-line run is tagged with its process, which holds a lock of that name while it lives. Its
# number would not do: in a container every `interleave run` is process 1.
RUNNER_TAG = "interleave/runner"
RUNNER = secrets.token_hex(8)
TRAINING_POOL = "gpu_train"


def prepare_home(home: Home, cluster: ClusterSettings | None = None) -> Path:
    """Make `DAGSTER_HOME` exist, as the profile wants it, and known to this and its children."""
    folder, config = home.dagster.resolve(), dagster_yaml(cluster)
    with storage_errors("written", folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_unless_edited(folder / "dagster.yaml", config)
        write_unless_edited(folder / "workspace.yaml", workspace_yaml())
    os.environ["DAGSTER_HOME"] = str(folder)
    return folder


@contextmanager
def open_instance(
    home: Home, cluster: ClusterSettings | None = None
) -> Iterator[dg.DagsterInstance]:
    """The instance, with its pools created and dead command-line runs closed.

    Args:
        cluster: section of the profile; None: everything on this machine.

    Raises:
        StorageError: Dagster's storage cannot be read or written, now or later.
        FoundryError: a package or variable is missing that the cluster needs.
    """
    folder = prepare_home(home, cluster)
    config = _command_line_config(folder)
    with _explained(folder), dg.DagsterInstance.from_config(str(folder), config) as instance:
        create_pools(instance, cluster.runs if cluster else SHARDS_AT_ONCE)
        close_dead_runs(instance, folder)
        with _alive(folder):
            yield instance


def _command_line_config(folder: Path) -> str:
    """`dagster.yaml`, but without copies of stdout: a helper process a run, for a few bars."""
    config = yaml.safe_load((folder / "dagster.yaml").read_text("utf-8")) or {}
    config["compute_logs"] = {
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    }
    path = folder / "command_line.yaml"
    with storage_errors("written", path):
        atomic_write(path, yaml.safe_dump(config))
    return path.name


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise StorageError(
            f"{folder}: Dagster's storage cannot be used ({error.orig}): make sure that it is "
            "writable and the disk not full, and run again"
        ) from error


def create_pools(instance: dg.DagsterInstance, shards: int) -> None:
    """Give every pool its size, unless somebody has set one already."""
    storage = instance.event_log_storage
    known = {info.name for info in storage.get_pool_limits()}
    for name, slots in (("generator", shards), ("agents", shards), (TRAINING_POOL, 1)):
        if name not in known:
            storage.set_concurrency_slots(name, slots)


@contextmanager
def widened_pool(instance: dg.DagsterInstance, name: str, slots: int) -> Iterator[None]:
    """At least so many slots in a pool, for as long as the context lasts."""
    storage = instance.event_log_storage
    before = next(info.limit or 0 for info in storage.get_pool_limits() if info.name == name)
    storage.set_concurrency_slots(name, max(before, slots))
    try:
        yield
    finally:
        storage.set_concurrency_slots(name, before)


def close_dead_runs(instance: dg.DagsterInstance, folder: Path) -> None:
    """Fail the runs whose command-line process is gone, and free the pool slots they held."""
    unfinished = [
        dg.DagsterRunStatus.NOT_STARTED,
        dg.DagsterRunStatus.STARTING,
        dg.DagsterRunStatus.STARTED,
        dg.DagsterRunStatus.CANCELING,
    ]
    for run in instance.get_runs(dg.RunsFilter(statuses=unfinished)):
        runner = run.tags.get(RUNNER_TAG)
        if runner and _gone(_lock(folder, runner)):
            instance.report_run_failed(run, "the process of this run is gone")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


@contextmanager
def _alive(folder: Path) -> Iterator[None]:
    """Hold this process's lock; the system releases it when the process dies."""
    path = _lock(folder, RUNNER)
    with storage_errors("written", path):
        path.parent.mkdir(exist_ok=True)
        lock = _try_lock(path)  # None: opened twice, this process holds it already
    try:
        yield
    finally:
        if lock:
            path.unlink(missing_ok=True)
            lock.release()


def _gone(path: Path) -> bool:
    if path.exists():
        lock = _try_lock(path)
        if lock is None:
            return False
        path.unlink(missing_ok=True)
        lock.release()
    return True


def _try_lock(path: Path) -> FileLock | None:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock


def _lock(folder: Path, runner: str) -> Path:
    return folder / "runners" / runner
