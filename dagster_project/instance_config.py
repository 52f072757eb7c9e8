"""Dagster's configuration files: made from the profile, until somebody changes them."""

import hashlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from assets.core.profile import ClusterSettings, PostgresSettings, RaySettings
from schemas import FoundryError
from warehouse.atomic import atomic_write
from warehouse.storage import first_line

# Nodes learn here what a run works on; secrets they must have themselves.
_PASSED_ON = [
    "INTERLEAVE_PROFILE",
    "INTERLEAVE_HOME",
    "INTERLEAVE_LOCAL",
    "INTERLEAVE_LEASE_SECONDS",
]
_SIGNED = "# Written by Interleave Foundry ({}); change it, and it is yours.\n"
# Over all runs; the calls within a shard have limits of their own.
SHARDS_AT_ONCE = 4
_PATIENCE_SECONDS = 5


def dagster_yaml(cluster: ClusterSettings | None) -> str:
    """The instance's configuration.

    Raises:
        FoundryError: a package is missing, or the Postgres that the profile names.
    """
    monitoring = {
        "enabled": True,
        "free_slots_after_run_end_seconds": 30,
        "poll_interval_seconds": 15,
    }
    runs = cluster.runs if cluster else SHARDS_AT_ONCE
    config: dict[str, Any] = {
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
        "concurrency": {
            "runs": {"max_concurrent_runs": runs},
            "pools": {"granularity": "op", "default_limit": runs},
        },
        "run_monitoring": monitoring,
    }
    if cluster and cluster.ray:
        _require("dagster_ray")
        config["run_launcher"] = _on_ray(cluster.ray)
        monitoring["max_resume_run_attempts"] = cluster.ray.resumes
    if cluster and cluster.postgres:
        _require("dagster_postgres")
        check_postgres(cluster.postgres)
        config["storage"] = _in_postgres(cluster.postgres)
    return yaml.safe_dump(config, sort_keys=False)


def workspace_yaml() -> str:
    """Where the code is: this package, in this environment, whose path is also that on nodes."""
    module = {
        "module_name": "dagster_project.definitions",
        "location_name": "interleave",
        "executable_path": sys.executable,
    }
    return yaml.safe_dump({"load_from": [{"python_module": module}]}, sort_keys=False)


def write_unless_edited(path: Path, text: str) -> None:
    """Write a generated file where there is none, or one that nobody has changed."""
    if path.exists() and not _generated(path.read_text("utf-8")):
        return
    atomic_write(path, _signature(text) + text)


def _on_ray(settings: RaySettings) -> dict[str, Any]:
    config = {
        "address": settings.address,
        "num_cpus": settings.cpus,
        "num_gpus": settings.gpus,
        "env_vars": _PASSED_ON,
    }
    module = "dagster_project.ray_launcher"
    return {"module": module, "class": "ShardLauncher", "config": {"ray": config}}


def _require(package: str) -> None:
    if find_spec(package) is None:
        raise FoundryError(f"section cluster of the profile needs {package}: run `make cluster`")


def check_postgres(settings: PostgresSettings) -> None:
    """Make sure that the database answers.

    Raises:
        FoundryError: it does not, or the variable with its password is not set.
    """
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


def _generated(text: str) -> bool:
    first, _, rest = text.partition("\n")
    return f"{first}\n" == _signature(rest)


def _signature(text: str) -> str:
    return _SIGNED.format(hashlib.sha256(text.encode()).hexdigest()[:12])
