import pytest

from schemas import StorageError
from warehouse import Home


def test_a_local_root_holds_everything(tmp_path):
    home = Home(tmp_path / "home")
    assert home.local == tmp_path / "home" == Home(f"file://{tmp_path}/home").local
    assert home.warehouse == tmp_path / "home/warehouse.duckdb"
    assert home.exports == tmp_path / "home/exports"
    assert home.dagster == tmp_path / "home/dagster"
    journal = home.journal("trajectories", "sketchbook-0000")
    assert journal.path == tmp_path / "home/journals/trajectories/sketchbook-0000.jsonl"


def test_the_default_is_below_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTERLEAVE_HOME", raising=False)
    assert Home.from_env().local == tmp_path / ".interleave"
    monkeypatch.setenv("INTERLEAVE_HOME", str(tmp_path / "elsewhere"))
    assert Home.from_env().local == tmp_path / "elsewhere"


def test_a_remote_root_has_a_local_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTERLEAVE_LOCAL", raising=False)
    assert Home("memory://shop/stories").local == tmp_path / ".interleave/memory-shop-stories"
    monkeypatch.setenv("INTERLEAVE_LOCAL", str(tmp_path / "here"))
    assert Home("memory://shop/stories").warehouse == tmp_path / "here/warehouse.duckdb"


def test_a_root_that_is_a_file_is_rejected(tmp_path):
    (tmp_path / "home").write_text("not a folder")
    with pytest.raises(StorageError, match="is a file: point INTERLEAVE_HOME at a folder"):
        Home(tmp_path / "home")
    with pytest.raises(StorageError, match="point INTERLEAVE_HOME at a folder"):
        Home(tmp_path / "home/below").journal("plans", "s").append({})


def test_unknown_protocols_and_unsafe_shard_names_are_rejected(home):
    with pytest.raises(StorageError, match="Protocol not known: carrier-pigeon"):
        Home("carrier-pigeon://coop/stories")
    for name in ("../x", "a/b", ""):
        with pytest.raises(StorageError, match="cannot name a file"):
            home.journal("plans", name)


def test_a_home_with_merged_table_files_is_an_error_of_one_line(home):
    merged = home.local / "lake" / "scores" / "_merged"
    merged.mkdir(parents=True)
    (merged / "_schema-2.parquet").write_bytes(b"of a home that was never compacted")
    assert Home(home.root).lake
    (merged / "sketchbook-00.parquet").write_bytes(b"PAR1")
    with pytest.raises(StorageError, match="merged by an earlier version") as error:
        _ = Home(home.root).lake
    assert str(merged) in str(error.value) and "start a new home" in str(error.value)
    assert "\n" not in str(error.value)
