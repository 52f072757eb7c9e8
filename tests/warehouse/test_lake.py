import threading

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from schemas import SchemaMismatchError, StorageError, Table
from schemas.curation import CRITIC_RL, ChatMessageRow, CriticRlRow, Evaluation
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, AttemptRow
from tests.warehouse.conftest import WITHOUT_S3
from warehouse import Home
from warehouse.table_files import BATCH_ROWS, content_hash

SHARD = "sketchbook-0000"


def test_rows_round_trip(any_home, attempts):
    rows = attempts(10)
    written = any_home.lake.write(ATTEMPTS, rows, SHARD)
    assert (written.rows, written.changed) == (10, True)
    stored = any_home.lake.read(ATTEMPTS)
    assert stored.schema.equals(ATTEMPTS.arrow_schema)
    assert [AttemptRow(**row) for row in stored.to_pylist()] == rows
    assert any_home.lake.partitions(ATTEMPTS) == [SHARD]
    assert any_home.lake.rows(ATTEMPTS, SHARD) == any_home.lake.rows(ATTEMPTS) == 10
    assert any_home.lake.content_hash(ATTEMPTS, SHARD) == written.content_hash


@WITHOUT_S3
def test_a_partition_is_replaced_and_removed_alone(any_home, attempts):
    any_home.lake.write(ATTEMPTS, attempts(4), "sketchbook-0000")
    any_home.lake.write(ATTEMPTS, attempts(8), "sketchbook-0001")
    any_home.lake.write(ATTEMPTS, attempts(1), "sketchbook-0000")
    assert any_home.lake.rows(ATTEMPTS) == 9
    assert any_home.lake.read(ATTEMPTS, ["sketchbook-0001"]).num_rows == 8
    any_home.lake.delete(ATTEMPTS, "sketchbook-0001")
    any_home.lake.delete(ATTEMPTS, "sketchbook-0001")
    assert any_home.lake.partitions(ATTEMPTS) == ["sketchbook-0000"]
    assert not any_home.lake.exists(ATTEMPTS, "sketchbook-0001")


@WITHOUT_S3
def test_nested_rows_survive_a_round_trip(any_home):
    row = CriticRlRow(
        row_id="r",
        prompt_id="p",
        trajectory_id="t",
        step_number=1,
        iteration=0,
        copy_number=0,
        origin_prompt="Zeichne ein Häuschen",
        rewritten_prompt="",
        origin_image="a" * 64,
        edited_image="b" * 64,
        evaluation=Evaluation(success=False, semantics=3.0, quality=9.5),
        messages=[ChatMessageRow(role="user", content="<image><image> Is it done?")],
        agent_prompt_version="critic-1",
    )
    any_home.lake.write(CRITIC_RL, [row])
    stored = any_home.lake.read(CRITIC_RL)
    assert CriticRlRow(**stored.to_pylist()[0]) == row
    assert not any_home.lake.write(CRITIC_RL, stored).changed


@WITHOUT_S3
def test_missing_partitions_are_empty_and_typed_also_beside_a_schema_file(any_home):
    assert any_home.lake.read(PROMPTS).schema.equals(PROMPTS.arrow_schema)
    assert any_home.lake.read(PROMPTS, ["sketchbook-0007"]).num_rows == 0
    assert any_home.lake.partitions(PROMPTS) == []
    assert any_home.lake.content_hash(PROMPTS, "sketchbook-0007") is None
    any_home.lake.write_schema_file(ATTEMPTS)
    assert any_home.lake.partitions(ATTEMPTS) == [] and any_home.lake.read(ATTEMPTS).num_rows == 0
    assert any_home.lake.is_absent(PROMPTS) and not any_home.lake.is_absent(ATTEMPTS)


def test_reads_only_selected_columns_and_matching_rows(home, attempts):
    home.lake.write(ATTEMPTS, attempts(8), SHARD)
    accepted = home.lake.read(ATTEMPTS, columns=["seed"], where=pc.field("accepted"))
    assert accepted.to_pylist() == [{"seed": 3}, {"seed": 7}]


def test_identical_content_is_not_rewritten(home, attempts):
    first = home.lake.write(ATTEMPTS, attempts(8), SHARD)
    file = home.local / "lake/attempts" / SHARD / "part-0.parquet"
    before = file.stat()
    again = home.lake.write(ATTEMPTS, ATTEMPTS.to_arrow(attempts(8)), SHARD)
    assert (again.changed, again.content_hash) == (False, first.content_hash)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert home.lake.write(ATTEMPTS, attempts(8, seed=1), SHARD).changed


def test_the_content_hash_ignores_how_rows_are_stored(attempts):
    table = ATTEMPTS.to_arrow(attempts(20))
    pieces = pa.concat_tables([table.slice(0, 3), table.slice(3, 9), table.slice(12)])
    assert content_hash(pieces) == content_hash(table)
    assert content_hash(table.replace_schema_metadata({})) == content_hash(table)
    undescribed = pa.schema([field.remove_metadata() for field in table.schema])
    assert content_hash(table.cast(undescribed)) == content_hash(table)
    assert content_hash(pieces.slice(2, 10)) == content_hash(table.slice(2, 10).combine_chunks())


def test_the_content_hash_differs_for_similar_columns():
    similar = (
        ([["a", "bc"]], [["ab", "c"]]),
        ([["a"], ["b"]], [["a", "b"], []]),
        ([None], [[]]),
        ([[None]], [[""]]),
    )
    for columns in similar:
        arrays = (pa.array(rows, pa.list_(pa.string())) for rows in columns)
        assert len({content_hash(pa.table({"x": array})) for array in arrays}) == 2


def test_the_file_has_table_version_hash_and_descriptions(home, attempts):
    written = home.lake.write(ATTEMPTS, attempts(1), SHARD)
    schema = pq.read_schema(written.url)
    assert schema.metadata[b"interleave.table"] == b"attempts"
    assert schema.metadata[b"interleave.version"] == b"1"
    assert schema.metadata[b"interleave.content_hash"].decode() == written.content_hash
    assert schema.field("image").metadata[b"description"] == b"sha256 of the generated image"
    assert pq.ParquetFile(written.url).metadata.row_group(0).column(0).compression == "ZSTD"


def test_another_schema_version_is_rejected_with_a_remedy(home, attempts):
    home.lake.write(ATTEMPTS, attempts(1), SHARD)
    newer = Table("attempts", AttemptRow, key=ATTEMPTS.key, version=2, sharded=True)
    with pytest.raises(SchemaMismatchError) as error:
        home.lake.read(newer)
    message = str(error.value)
    assert "table attempts, partition sketchbook-0000" in message
    assert "has schema version 1, this code reads version 2" in message
    assert "materialize attempts again" in message
    assert "\n" not in message
    assert home.lake.write(newer, attempts(1), SHARD).changed


def test_other_columns_are_rejected_by_name(home, attempts):
    old = ATTEMPTS.to_arrow(attempts(1)).drop_columns(["chosen"])
    old = old.append_column("mood", pa.array(["sunny"]))
    path = home.local / "lake/attempts" / SHARD / "part-0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(old, path)
    with pytest.raises(SchemaMismatchError, match="without column chosen and with unknown column"):
        home.lake.read(ATTEMPTS)
    with pytest.raises(SchemaMismatchError, match="without column chosen"):
        home.lake.write(ATTEMPTS, old, SHARD)
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(SchemaMismatchError, match="has schema version none"):
        home.lake.read(ATTEMPTS)


def test_null_in_a_required_column_is_rejected(home, attempts):
    table = ATTEMPTS.to_arrow(attempts(2))
    index = table.column_names.index("image")
    table = table.set_column(index, "image", pa.array([None, "b" * 64]))
    with pytest.raises(SchemaMismatchError, match=r"attempts/all: null in image"):
        home.lake.write(ATTEMPTS, table)


def test_columns_are_reordered_and_cast(home, attempts):
    table = ATTEMPTS.to_arrow(attempts(3))
    shuffled = table.select(table.column_names[::-1])
    index = shuffled.column_names.index("seed")
    shuffled = shuffled.set_column(index, "seed", shuffled["seed"].cast(pa.int32()))
    home.lake.write(ATTEMPTS, shuffled)
    assert home.lake.read(ATTEMPTS).equals(table)


def test_unsafe_partition_names_are_rejected(home, attempts):
    for name in ("../evil", "a/b", "", ".hidden", "_schema", "x'y", "x" * 300):
        with pytest.raises(StorageError, match="cannot name a file"):
            home.lake.write(ATTEMPTS, attempts(1), name)


def test_concurrent_writers_of_one_partition_leave_one_valid_file(home, attempts):
    def write(number: int) -> None:
        for _ in range(10):
            Home(home.root).lake.write(ATTEMPTS, attempts(50, seed=number), SHARD)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = home.lake.read(ATTEMPTS)
    assert stored.num_rows == 50
    assert len(set(stored["seed"].to_pylist())) == 1
    assert [path.name for path in (home.local / "lake").rglob("*.*") if path.is_file()] == [
        "part-0.parquet"
    ]


def reader(table: pa.Table, size: int) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=size))


@pytest.mark.parametrize("count", [0, BATCH_ROWS, BATCH_ROWS + 1, 70_000])
def test_a_reader_is_written_like_a_table(home, attempts, count):
    table = pa.concat_tables([ATTEMPTS.to_arrow(attempts(700))] * 100).slice(0, count)
    written = home.lake.write(ATTEMPTS, reader(table, 7_777), SHARD)
    again = home.lake.write(ATTEMPTS, table, SHARD)
    assert (written.rows, written.changed) == (count, True)
    assert (again.content_hash, again.changed) == (written.content_hash, False)
    assert home.lake.read(ATTEMPTS).equals(table)


def test_a_reader_of_other_columns_or_that_fails_leaves_the_old_partition(home, attempts):
    table = ATTEMPTS.to_arrow(attempts(5))
    home.lake.write(ATTEMPTS, attempts(2), SHARD)

    def failing():
        yield from table.to_batches()
        raise RuntimeError("upstream")

    with pytest.raises(RuntimeError):
        home.lake.write(
            ATTEMPTS, pa.RecordBatchReader.from_batches(ATTEMPTS.arrow_schema, failing()), SHARD
        )
    with pytest.raises(SchemaMismatchError, match="without column reasoning"):
        home.lake.write(ATTEMPTS, reader(table.drop_columns(["reasoning"]), 10), SHARD)
    assert home.lake.read(ATTEMPTS).num_rows == 2
