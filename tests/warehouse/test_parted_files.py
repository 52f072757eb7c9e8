"""Rows in one file, or in several of bounded size."""

import json

import pytest

from warehouse.parted_files import JsonList, PartedFile, stored_files


def write(folder, rows: int) -> list[str]:
    """Four rows a file; names of the files."""
    whole, parts = folder / "set.json", folder / "parts"
    file = PartedFile(whole, parts, 4, JsonList)
    for number in range(rows):
        file.add({"number": number})
    assert file.close() == (rows > 4) and file.count == rows
    return [str(path.relative_to(folder)) for path in stored_files(whole, parts)]


def test_one_file_holds_what_fits(tmp_path):
    for rows in (0, 1, 4):
        assert write(tmp_path, rows) == ["set.json"]
        assert len(json.loads((tmp_path / "set.json").read_bytes())) == rows
        assert [path.name for path in tmp_path.iterdir()] == ["set.json"]


@pytest.mark.parametrize(("rows", "sizes"), [(8, [4, 4]), (9, [4, 4, 1])])
def test_more_rows_are_several_files_in_order(tmp_path, rows, sizes):
    names = write(tmp_path, rows)
    assert names == [f"parts/set-{n:05d}-of-{len(sizes):05d}.json" for n in range(len(sizes))]
    found = [json.loads((tmp_path / name).read_bytes()) for name in names]
    assert [len(each) for each in found] == sizes
    assert [row["number"] for each in found for row in each] == list(range(rows))
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"set\.json"):
        stored_files(tmp_path / "set.json", tmp_path / "parts")
    for name in write(tmp_path, 9)[1:]:
        (tmp_path / name).unlink()
        with pytest.raises(FileNotFoundError, match=r"set-00001-of-00003\.json"):
            stored_files(tmp_path / "set.json", tmp_path / "parts")
