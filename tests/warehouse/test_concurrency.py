"""Four writer processes and readers in a loop: no lock error, every partition whole."""

import subprocess
import sys

import duckdb
import orjson
import pytest

from schemas.trajectories import ATTEMPTS
from warehouse.sql import query, run_sql
from warehouse.views import connect, refresh_views, with_retries

ROWS = 200
VERSIONS = 12
WHOLE = """
    SELECT shard, count(*) AS rows, min(seed) AS low, max(seed) AS high, any_value(prompt) AS prompt
    FROM attempts GROUP BY shard
"""

# Every version of a partition has its own number in each of its rows.
WRITER = """
import sys, time
import pyarrow as pa
from schemas.trajectories import ATTEMPTS
from warehouse import Home
from warehouse.views import refresh_views

home, shard = Home(sys.argv[1]), sys.argv[2]
first = home.lake.read(ATTEMPTS, [shard])
index = first.column_names.index("seed")
version = 0
while True:
    version += 1
    time.sleep(0.02)  # else four of them take all cores
    seeds = pa.array([version] * first.num_rows, pa.int64())
    home.lake.write(ATTEMPTS, first.set_column(index, first.field("seed"), seeds), shard)
    if version % 10 == 0:
        refresh_views(home)
"""


def is_complete(rows: list[dict]) -> bool:
    return len(rows) == 4 and all(row["rows"] == ROWS and row["low"] == row["high"] for row in rows)


@pytest.mark.slow
def test_readers_and_four_writers_work_at_the_same_time(home, attempts):
    shards = [f"sketchbook-{number:04d}" for number in range(4)]
    for shard in shards:
        home.lake.write(ATTEMPTS, attempts(ROWS, shard=shard, seed=0), shard)
    refresh_views(home)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, home.root, shard], stderr=subprocess.PIPE)
        for shard in shards
    ]
    versions: set[int] = set()
    try:
        with connect(home) as connection:
            while len(versions) < VERSIONS:
                rows = orjson.loads(run_sql(home, WHOLE, "json"))
                assert is_complete(rows)
                versions |= {row["high"] for row in rows}
                assert is_complete(query(WHOLE, home).to_dict("records"))
                assert is_complete(connection.sql(WHOLE).to_arrow_table().to_pylist())
                with duckdb.connect(home.warehouse, read_only=True) as client:
                    assert is_complete(client.sql(WHOLE).to_arrow_table().to_pylist())
                assert [writer.poll() for writer in writers] == [None] * 4
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            writer.stderr.close()


def test_a_read_that_meets_a_replaced_file_is_tried_again():
    answers = [duckdb.IOException("gone"), duckdb.Error("TProtocolException: Invalid data"), 7]

    def read():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert with_retries(read) == 7
    answers[:] = [duckdb.Error("always")] * 10
    with pytest.raises(duckdb.Error, match="always"):
        with_retries(read)
    assert len(answers) == 4, "six tries"
