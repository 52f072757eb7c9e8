"""The Dagster instance inside the lake's local folder: its configuration files (made from the
profile, until somebody changes them), storage, pools, and runs that died.

`DAGSTER_HOME` is `$INTERLEAVE_HOME/dagster`, so the UI and the command line share one history.
"""

import hashlib
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from filelock import FileLock, Timeout

from assets.core.profile import ClusterSettings, PostgresSettings, RaySettings
from schemas import FoundryError, StorageError
from warehouse import Home
from warehouse.atomic import atomic_write
from warehouse.storage import first_line, storage_errors

# A command-line run is tagged with its process, which holds a lock of that name while it lives. Its
# number would not do: in a container every `interleave run` is process 1.
RUNNER_TAG = "interleave/runner"
RUNNER = secrets.token_hex(8)
PARTITION_TAG = "dagster/partition"
NO_RETRIES = {"dagster/max_retries": "0"}  # tags of runs that only the command line can repeat
# Of two runs with this tag one waits: what is compared with the agents in use must stay in use
# until it is decided about.
PROMOTES_TAG = "interleave/promotes"
TRAINING_POOL = "gpu_train"
_FINISHED = {dg.DagsterRunStatus[name] for name in ("SUCCESS", "FAILURE", "CANCELED", "MANAGED")}
UNFINISHED = [status for status in dg.DagsterRunStatus if status not in _FINISHED]
# Nodes learn here what a run works on; secrets they must have themselves.
_RAY_ENV = ["INTERLEAVE_PROFILE", "INTERLEAVE_HOME", "INTERLEAVE_LOCAL", "INTERLEAVE_LEASE_SECONDS"]
_SIGNED = "# Written by Interleave Foundry ({}); change it, and it is yours.\n"
# Shards at once; the calls within a shard have limits of their own.
_ONE_MACHINE = ClusterSettings(runs=4)
_PATIENCE_SECONDS = 5
_RETRIES = 2


def prepare_home(home: Home, cluster: ClusterSettings) -> Path:
    """Make `DAGSTER_HOME` exist, as the profile wants it, and known to this and its children."""
    folder, config = home.dagster.resolve(), dagster_yaml(cluster)
    # The code is this package, in this environment, whose path is also that on nodes.
    code = {
        "module_name": "dagster_project.definitions",
        "location_name": "interleave",
        "executable_path": sys.executable,
    }
    workspace = yaml.safe_dump({"load_from": [{"python_module": code}]}, sort_keys=False)
    with storage_errors("written", folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_unless_edited(folder / "dagster.yaml", config)
        write_unless_edited(folder / "workspace.yaml", workspace)
    os.environ["DAGSTER_HOME"] = str(folder)
    return folder


@contextmanager
def open_instance(
    home: Home, cluster: ClusterSettings | None = None
) -> Iterator[dg.DagsterInstance]:
    """The instance, with its pools created and dead command-line runs closed.

    Raises:
        StorageError: Dagster's storage cannot be read or written, now or later.
        FoundryError: a package or variable is missing that the cluster needs.
    """
    from sqlalchemy.exc import DBAPIError

    cluster = cluster or _ONE_MACHINE
    folder = prepare_home(home, cluster)
    try:
        with dg.DagsterInstance.from_config(str(folder), _command_line_config(folder)) as instance:
            create_pools(instance, cluster.runs)
            close_dead_runs(instance, folder)
            with _alive(folder):
                yield instance
    except DBAPIError as error:
        raise StorageError(
            f"{folder}: Dagster's storage cannot be used ({error.orig}): make sure that it is "
            "writable and the disk not full, and run again"
        ) from error


def _command_line_config(folder: Path) -> str:
    """`dagster.yaml`, but without copies of stdout: a helper process a run, for a few bars."""
    config = yaml.safe_load((folder / "dagster.yaml").read_text("utf-8")) or {}
    module = "dagster._core.storage.noop_compute_log_manager"
    config["compute_logs"] = {"module": module, "class": "NoOpComputeLogManager"}
    path = folder / "command_line.yaml"
    with storage_errors("written", path):
        atomic_write(path, yaml.safe_dump(config))
    return path.name


def shards_at_once(cluster: ClusterSettings | None) -> int:
    return (cluster or _ONE_MACHINE).runs


def create_pools(instance: dg.DagsterInstance, shards: int) -> None:
    """Give every pool its size, unless somebody has set one already."""
    storage = instance.event_log_storage
    known = {info.name for info in storage.get_pool_limits()}
    for name, slots in (("generator", shards), ("agents", shards), (TRAINING_POOL, 1)):
        if name not in known:
            storage.set_concurrency_slots(name, slots)


@contextmanager
def widened_pool(instance: dg.DagsterInstance, name: str, slots: int) -> Iterator[None]:
    """At least so many slots in a pool, while the context lasts."""
    storage = instance.event_log_storage
    before = next(info.limit or 0 for info in storage.get_pool_limits() if info.name == name)
    storage.set_concurrency_slots(name, max(before, slots))
    try:
        yield
    finally:
        storage.set_concurrency_slots(name, before)


def close_dead_runs(instance: dg.DagsterInstance, folder: Path) -> None:
    """Fail the runs whose command-line process is gone, and free the pool slots they held."""
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        runner = run.tags.get(RUNNER_TAG)
        if runner and _gone(folder / "runners" / runner):
            instance.report_run_failed(run, "the process of this run is gone")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    for path in (folder / "runners").glob("*"):
        _gone(path)  # removes the files of dead processes


@contextmanager
def _alive(folder: Path) -> Iterator[None]:
    """Hold this process's lock; the system releases it when the process dies."""
    path = folder / "runners" / RUNNER
    with storage_errors("written", path):
        path.parent.mkdir(exist_ok=True)
        lock = FileLock(path)
        with suppress(Timeout):  # opened twice, this process holds it already
            lock.acquire(timeout=0)
    try:
        yield
    finally:
        if lock.is_locked:
            path.unlink(missing_ok=True)
            lock.release()


def _gone(path: Path) -> bool:
    try:
        if path.exists():
            with FileLock(path).acquire(timeout=0):
                path.unlink(missing_ok=True)
    except Timeout:
        return False
    return True


def dagster_yaml(cluster: ClusterSettings) -> str:
    """The instance's configuration; FoundryError: a package or its Postgres is missing."""
    monitor = {"enabled": True, "free_slots_after_run_end_seconds": 30, "poll_interval_seconds": 15}
    config: dict[str, Any] = {
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
        "concurrency": {
            "runs": {
                "max_concurrent_runs": cluster.runs,
                "tag_concurrency_limits": [{"key": PROMOTES_TAG, "limit": 1}],
            },
            "pools": {"granularity": "op", "default_limit": cluster.runs},
        },
        "run_monitoring": monitor,
        # Only runs whose process died: what an asset raises, it would raise again.
        "run_retries": {
            "enabled": True,
            "max_retries": _RETRIES,
            "retry_on_asset_or_op_failure": False,
        },
    }
    if cluster.ray:
        _require("dagster_ray")
        config["run_launcher"] = _on_ray(cluster.ray)
        monitor["max_resume_run_attempts"] = cluster.ray.resumes
    if cluster.postgres:
        _require("dagster_postgres")
        check_postgres(cluster.postgres)
        config["storage"] = _in_postgres(cluster.postgres)
    return yaml.safe_dump(config, sort_keys=False)


def write_unless_edited(path: Path, text: str) -> None:
    """Write a generated file where there is none, or one that nobody has changed."""
    if path.exists():
        first, _, rest = path.read_text("utf-8").partition("\n")
        if f"{first}\n" != _signature(rest):
            return
    atomic_write(path, _signature(text) + text)


def _on_ray(settings: RaySettings) -> dict[str, Any]:
    config = {
        "address": settings.address,
        "num_cpus": settings.cpus,
        "num_gpus": settings.gpus,
        "env_vars": _RAY_ENV,
    }
    module = "dagster_project.ray_launcher"
    return {"module": module, "class": "ShardLauncher", "config": {"ray": config}}


def _require(package: str) -> None:
    if find_spec(package) is None:
        raise FoundryError(f"section cluster of the profile needs {package}: run `make cluster`")


def check_postgres(settings: PostgresSettings) -> None:
    """Raise FoundryError if the database does not answer, or its password's variable is not set."""
    import psycopg2

    password = os.environ.get(settings.password or "")
    if settings.password and not password:
        raise FoundryError(f"the environment variable {settings.password} is not set")
    try:
        psycopg2.connect(
            host=settings.host,
            port=settings.port,
            user=settings.user,
            password=password,
            dbname=settings.database,
            connect_timeout=_PATIENCE_SECONDS,
        ).close()
    except psycopg2.Error as error:
        raise FoundryError(
            f"Postgres cannot be used ({first_line(error)}): start it, or correct "
            "`cluster.postgres`"
        ) from error


def _in_postgres(settings: PostgresSettings) -> dict[str, Any]:
    password = {"password": {"env": settings.password}} if settings.password else {}
    place = {
        "hostname": settings.host,
        "port": settings.port,
        "username": settings.user,
        **password,
        "db_name": settings.database,
        "scheme": "postgresql+psycopg2",  # SQLAlchemy's default has become the newer psycopg
    }
    return {"postgres": {"postgres_db": place}}


def _signature(text: str) -> str:
    return _SIGNED.format(hashlib.sha256(text.encode()).hexdigest()[:12])
