"""Writing a table from a reader: the same content as from a table, without holding the rows."""

import pyarrow as pa
import pytest

from schemas import SchemaMismatchError
from schemas.trajectories import QUARANTINE
from warehouse import Home
from warehouse.content_hash import BATCH_ROWS


@pytest.fixture
def lake(tmp_path):
    return Home(tmp_path).lake


def rows(count: int) -> pa.Table:
    columns = {name: [f"{name} {n}" for n in range(count)] for name in QUARANTINE.columns}
    return pa.table(columns, schema=QUARANTINE.arrow_schema)


def reader(table: pa.Table, size: int) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=size))


@pytest.mark.parametrize("count", [0, 10, BATCH_ROWS, BATCH_ROWS + 1])
@pytest.mark.parametrize("size", [7_777, 10**6])
def test_a_reader_is_written_like_a_table(lake, count, size):
    table = rows(count)
    written = lake.write(QUARANTINE, reader(table, size))
    again = lake.write(QUARANTINE, table)
    assert (written.rows, written.changed) == (count, True)
    assert (again.content_hash, again.changed) == (written.content_hash, False)
    assert lake.read(QUARANTINE).equals(table)


def test_a_reader_of_other_columns_is_rejected_and_nothing_is_written(lake):
    table = rows(3).drop_columns(["reason"])
    with pytest.raises(SchemaMismatchError, match="without column reason"):
        lake.write(QUARANTINE, reader(table, 10))
    assert lake.partitions(QUARANTINE) == []


def test_a_failing_reader_leaves_the_old_partition(lake):
    lake.write(QUARANTINE, rows(2))

    def failing():
        yield from rows(5).to_batches()
        raise RuntimeError("upstream")

    with pytest.raises(RuntimeError):
        lake.write(
            QUARANTINE, pa.RecordBatchReader.from_batches(QUARANTINE.arrow_schema, failing())
        )
    assert lake.read(QUARANTINE).num_rows == 2
