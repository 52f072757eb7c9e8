"""Dagster's history in a real Postgres."""

import os
import subprocess
from pathlib import Path

import psycopg2
import pytest

from tests.dagster_project.postgres_server import PASSWORD, postgres
from tests.helpers.command import INTERLEAVE

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def port():
    with postgres() as port:
        yield port


@pytest.fixture
def in_postgres(profile):
    """Writes a profile whose history is at a port."""

    def write(port):
        server = f"host: 127.0.0.1, port: {port}, user: foundry, database: postgres"
        with Path(profile).open("a") as file:
            file.write(f"\ncluster: {{postgres: {{{server}, password: THE_PASSWORD}}, runs: 2}}\n")
        return profile

    return write


def run(profile, home, password=PASSWORD):
    stages = "taxonomy,vocabulary_expansion,vocabulary,templates,prompts,plans"
    command = [*INTERLEAVE, "run", "--profile", profile, "--home", str(home), "--select", stages]
    environment = {**os.environ, "COLUMNS": "200", "THE_PASSWORD": password}
    environment.pop("DAGSTER_HOME", None)
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def test_assets_are_made_once_and_their_history_is_in_postgres(in_postgres, tmp_path, port):
    profile, home = in_postgres(port), tmp_path / "home"
    first = run(profile, home)
    assert first.returncode == 0, first.stderr
    again = run(profile, home)
    assert again.returncode == 0 and "Materializing" not in again.stdout, again.stdout
    where = f"host=127.0.0.1 port={port} user=foundry dbname=postgres password={PASSWORD}"
    with psycopg2.connect(where) as connection, connection.cursor() as cursor:
        cursor.execute("select distinct status from runs")
        assert cursor.fetchall() == [("SUCCESS",)]
        cursor.execute("select count(*) from asset_keys")
        assert cursor.fetchone()[0] == 6
    assert not (home / "dagster" / "history").exists()
    written = [path for path in (home / "dagster").rglob("*") if path.is_file()]
    assert written and not [path for path in written if PASSWORD.encode() in path.read_bytes()]


def test_what_is_missing_is_said_in_one_line_without_the_password(in_postgres, tmp_path):
    profile = in_postgres(1)
    unset = run(profile, tmp_path / "home", password="")
    assert unset.returncode == 1
    assert unset.stderr == "error: the environment variable THE_PASSWORD is not set\n"
    away = run(profile, tmp_path / "home")
    assert away.returncode == 1
    assert len(away.stderr.strip().splitlines()) == 1, away.stderr
    assert "Postgres cannot be used" in away.stderr and PASSWORD not in away.stderr
