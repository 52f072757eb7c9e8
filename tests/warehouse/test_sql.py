import io
import json
import threading
from itertools import cycle

import pandas as pd
import pyarrow.parquet as pq
import pytest

from schemas import FoundryError, SchemaMismatchError, Table
from schemas.trajectories import ATTEMPTS, AttemptRow
from tests.warehouse.conftest import attempt
from warehouse import Home
from warehouse.sql import SqlError, run_query, run_sql
from warehouse.views import refresh_views

SHARD = "sketchbook-0000"
GROUPED = "SELECT accepted, count(*) AS n, avg(seed) AS mean FROM attempts GROUP BY ALL ORDER BY 1"


@pytest.fixture(scope="module")
def populated(tmp_path_factory):
    """A home that the tests only read."""
    home = Home(tmp_path_factory.mktemp("sql"))
    home.lake.write(ATTEMPTS, [attempt(number) for number in range(120)], SHARD)
    return home


def test_the_text_table_is_readable(populated):
    assert run_sql(populated, GROUPED).decode().splitlines() == [
        "accepted ┃  n ┃ mean",
        "━━━━━━━━━╇━━━━╇━━━━━",
        "false    │ 90 │   59",
        "true     │ 30 │   61",
        "2 rows",
    ]


def test_the_text_table_fits_the_terminal(populated):
    for width in (40, 80, 200):
        lines = run_sql(populated, "SELECT * FROM attempts", width=width).decode().splitlines()
        assert all(len(line) <= width for line in lines[:-1])
        assert lines[0].startswith("trajectory_id")
        assert lines[-1].startswith("120 rows; first 50 shown; ")
        assert "columns not shown: " in lines[-1]


def test_long_cells_are_truncated_and_lines_joined(populated):
    words = "SELECT repeat('word' || chr(10), 40) AS t, NULL AS n, '[red]cat[/red]' AS markup"
    text = run_sql(populated, words).decode()
    assert "word word word" in text and "…" in text and "NULL" in text
    assert "[red]cat[/red]" in text and text.endswith("1 row\n")


def test_an_empty_result_has_its_columns(populated):
    text = run_sql(populated, "SELECT prompt_id, text FROM prompts").decode()
    assert text.splitlines()[0].split() == ["prompt_id", "┃", "text"]
    assert text.endswith("0 rows\n")


def test_csv_round_trip(populated):
    sql = "SELECT seed, accepted, source_image, [1, 2] AS l FROM attempts ORDER BY seed LIMIT 2"
    assert run_sql(populated, sql, "csv").decode().splitlines() == [
        "seed,accepted,source_image,l",
        '0,false,,"[1,2]"',
        f'1,false,{"a" * 64},"[1,2]"',
    ]
    frame = pd.read_csv(io.BytesIO(run_sql(populated, "FROM attempts", "csv")))
    assert len(frame) == 120


def test_json_round_trip(populated):
    sql = "SELECT sum(seed) AS s, {'a': [true]} AS o, 1 AS x, 2 AS x FROM attempts"
    assert json.loads(run_sql(populated, sql, "json")) == [
        {"s": 7140, "o": {"a": [True]}, "x": 1, "x_1": 2}
    ]


def test_parquet_round_trip(populated, tmp_path):
    out = tmp_path / "new" / "answer.parquet"
    sql = "SELECT prompt, INTERVAL 3 DAY AS wait FROM attempts"
    assert run_sql(populated, sql, "parquet", out) == f"120 rows written to {out}\n".encode()
    stored = pq.read_table(out)
    assert stored.num_rows == 120
    assert stored["wait"][0].as_py() == "3 days"
    assert pq.read_table(io.BytesIO(run_sql(populated, sql, "parquet"))).equals(stored)


def test_other_files_are_read_only_where_that_is_asked_for(populated, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("n\n7\n")
    with pytest.raises(SqlError, match="--other-files"):
        run_sql(populated, f"FROM '{other}'")
    assert b"7" in run_sql(populated, f"FROM '{other}'", other_files=True)
    assert run_sql(populated, f"FROM read_parquet('{populated.root}/lake/attempts/*/*.parquet')")


def test_metadata_queries_are_allowed(populated):
    for sql in ("DESCRIBE attempts", "SHOW TABLES", "EXPLAIN FROM attempts", "SUMMARIZE attempts"):
        assert b"row" in run_sql(populated, sql)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC 1", r'^SQL syntax error at or near "SELEC" \(line 1, column 1\)$'),
        ("SELECT 1\nFORM x y", r"^SQL syntax error at or near .* \(line 2, column \d\)$"),
        ("SELECT * FROM nope", r"^no table 'nope'; there are: .*attempts, scores"),
        ("SELECT nope FROM attempts", r'^SQL: Referenced column "nope" not found'),
        ("SELECT prompt::INT FROM attempts", r"^SQL: Could not convert string"),
        ("", r"^the query is empty$"),
        ("DROP VIEW attempts", r"^DROP is not allowed"),
        ("COPY attempts TO 'x.csv'", r"^COPY is not allowed: .*--out"),
        ("CREATE TABLE x AS SELECT 1", r"^CREATE is not allowed"),
        ("SELECT 1; DELETE FROM attempts", r"^DELETE is not allowed"),
    ],
)
def test_errors_are_one_clear_line(populated, sql, message):
    with pytest.raises(FoundryError, match=message) as error:
        run_sql(populated, sql)
    assert "\n" not in str(error.value)


def test_before_the_first_run_the_error_has_a_remedy(home):
    with pytest.raises(FoundryError, match=r"there are no tables in .* yet: `interleave run`"):
        run_sql(home, "SELECT * FROM prompts")


def test_a_table_of_an_older_schema_is_named(home, attempts):
    older = Table("attempts", AttemptRow, key=ATTEMPTS.key, version=0, sharded=True)
    home.lake.write(older, attempts(3), SHARD)
    with pytest.raises(SchemaMismatchError, match="table attempts, partition sketchbook-0000: has"):
        run_sql(home, "WITH x AS (SELECT * FROM attempts) SELECT count(*) FROM x")
    assert run_sql(home, "SELECT count(*) FROM prompts")


def test_a_result_that_cannot_be_written_is_a_one_line_error(populated, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FoundryError, match="cannot be written: a file is in the way"):
        run_sql(populated, "FROM attempts", "csv", tmp_path / "file" / "answer.csv")


def test_a_query_works_while_partitions_are_replaced_and_removed(home, attempts):
    stop = threading.Event()
    versions = [ATTEMPTS.to_arrow(attempts(50, seed=number)) for number in range(2)]

    def rewrite() -> None:
        for rows in cycle(versions):
            if stop.wait(0.01):
                return
            home.lake.write(ATTEMPTS, rows, SHARD)
            home.lake.delete(ATTEMPTS, "sketchbook-0001")
            home.lake.write(ATTEMPTS, rows, "sketchbook-0001")

    home.lake.write(ATTEMPTS, versions[1], SHARD)
    refresh_views(home)
    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(20):
            sql = "SELECT count(*) AS n FROM attempts GROUP BY seed"
            assert set(run_query(home, sql)["n"].to_pylist()) <= {50, 100}
    finally:
        stop.set()
        writer.join()
