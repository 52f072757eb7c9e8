import shutil
import subprocess
import sys

import duckdb
import pytest

import interleave_foundry
from schemas import TABLES, VIEWS
from schemas.curation import CRITIC_RL
from schemas.trajectories import ATTEMPTS, MODEL_CALLS
from tests.warehouse.conftest import WITHOUT_S3
from warehouse import Home
from warehouse.sql import query
from warehouse.views import connect, refresh_views

COUNT = "SELECT count(*) AS n FROM attempts"


@WITHOUT_S3
def test_every_table_and_view_has_its_columns_even_when_it_is_empty(any_home):
    with connect(any_home) as connection:
        for name, described in (TABLES | VIEWS).items():
            empty = connection.sql(f"SELECT * FROM {name}")
            assert (empty.columns, empty.fetchall()) == (list(described.columns), []), name


def test_empty_and_filled_views_have_the_same_types(home):
    def types() -> list[str]:
        with connect(home) as connection:
            tables = (ATTEMPTS, CRITIC_RL, MODEL_CALLS)
            return [str(connection.sql(f"FROM {table.name}").types) for table in tables]

    unseeded = types()
    refresh_views(home)
    assert types() == unseeded
    assert "TIMESTAMP WITH TIME ZONE" in unseeded[2]


@WITHOUT_S3
def test_rows_are_visible_as_soon_as_they_are_written(any_home, attempts):
    refresh_views(any_home)
    with connect(any_home) as connection:
        assert connection.sql(COUNT).fetchall() == [(0,)]
        any_home.lake.write(ATTEMPTS, attempts(4), "sketchbook-0000")
        any_home.lake.write(ATTEMPTS, attempts(6), "sketchbook-0001")
        assert connection.sql(COUNT).fetchall() == [(10,)]
        any_home.lake.write(ATTEMPTS, attempts(1), "sketchbook-0001")
        assert connection.sql(COUNT).fetchall() == [(5,)]


def test_query_returns_a_data_frame(any_home, attempts, monkeypatch):
    """Of the home of the environment, if none is given."""
    any_home.lake.write(ATTEMPTS, attempts(8), "sketchbook-0000")
    sql = "SELECT accepted, count(*) AS n, sum(seed) AS s FROM attempts GROUP BY ALL"
    monkeypatch.setenv("INTERLEAVE_HOME", any_home.root)
    for frame in (query(sql, any_home), query(sql)):
        assert frame.set_index("accepted").loc[True].to_dict() == {"n": 2, "s": 10}
    assert interleave_foundry.query is query


def test_the_warehouse_documents_tables_and_columns(home):
    refresh_views(home)
    with duckdb.connect(home.warehouse, read_only=True) as client:
        found = client.sql("SELECT comment FROM duckdb_views() WHERE view_name = 'attempts'")
        assert found.fetchall() == [("One generator call and the critic's verdict on it.",)]
        column = client.sql(
            "SELECT comment FROM duckdb_columns() "
            "WHERE table_name = 'attempts' AND column_name = 'image'"
        )
        assert column.fetchall() == [("sha256 of the generated image",)]


def test_any_client_opens_the_warehouse_from_anywhere_and_blocks_no_refresh(
    home, attempts, tmp_path
):
    refresh_views(home)
    refresh_views(home)
    assert sorted(path.name for path in home.local.iterdir()) == ["lake", "warehouse.duckdb"]
    home.lake.write(ATTEMPTS, attempts(8), "sketchbook-0000")
    code = (
        f"import duckdb; c = duckdb.connect({str(home.warehouse)!r}); "
        f"print(c.sql({COUNT!r}).fetchall(), c.sql('FROM prompts').fetchall(), flush=True); "
        "input()"
    )
    call, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(call, cwd=tmp_path, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout and holder.stdout.readline() == "[(8,)] []\n"
        assert query(COUNT, home)["n"].tolist() == [8]
        refresh_views(home)
        with duckdb.connect(home.warehouse, read_only=True) as client:
            assert client.sql(COUNT).fetchall() == [(8,)]
        holder.communicate("\n")


def test_a_home_that_was_moved_to_a_name_with_quotes_and_blanks(home, attempts, tmp_path):
    home.lake.write(ATTEMPTS, attempts(8), "sketchbook-0000")
    refresh_views(home)
    shutil.move(home.local, tmp_path / "Ana's home [1]")
    moved = Home(tmp_path / "Ana's home [1]")
    assert query(COUNT, moved)["n"].tolist() == [8]
    refresh_views(moved)
    with duckdb.connect(moved.warehouse, read_only=True) as client:
        assert client.sql(COUNT).fetchall() == [(8,)]
    assert moved.lake.rows(ATTEMPTS) == 8


def test_a_read_only_connection_cannot_change_the_views(home, attempts):
    home.lake.write(ATTEMPTS, attempts(8), "sketchbook-0000")
    with connect(home) as connection, pytest.raises(duckdb.Error, match="read-only"):
        connection.execute("DROP VIEW attempts")
    with connect(home, read_only=False) as connection:
        connection.execute("CREATE TABLE mine AS SELECT * FROM attempts")
        assert connection.sql("SELECT count(*) FROM mine").fetchall() == [(8,)]
