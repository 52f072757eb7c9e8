"""Dagster's history in a real Postgres."""

import psycopg2
import pytest

from tests.dagster_project.conftest import tiny_foundry
from tests.dagster_project.postgres_server import PASSWORD, postgres, postgres_cluster
from tests.helpers.command import interleave

pytestmark = pytest.mark.long

STAGES = "taxonomy,vocabulary_expansion,vocabulary,templates,prompts,plans"


@pytest.fixture
def run(tmp_path, capsys):
    """Runs the lineage in `home`, its history in a database at a port."""

    def run(port, password=PASSWORD):
        profile = tiny_foundry(tmp_path, cluster=postgres_cluster(port)).profile
        command = ["run", "--profile", profile, "--home", tmp_path / "home", "--select", STAGES]
        return interleave(capsys, *command, THE_PASSWORD=password)

    return run


def test_assets_are_made_once_and_their_history_is_in_postgres(run, tmp_path):
    home = tmp_path / "home"
    with postgres() as port:
        first = run(port)
        assert first.returncode == 0, first.stderr
        again = run(port)
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


def test_what_is_missing_is_said_in_one_line_without_the_password(run):
    unset = run(1, password="")
    assert unset.returncode == 1
    assert unset.stderr == "error: the environment variable THE_PASSWORD is not set\n"
    away = run(1)
    assert away.returncode == 1
    assert len(away.stderr.strip().splitlines()) == 1, away.stderr
    assert "Postgres cannot be used" in away.stderr and PASSWORD not in away.stderr
