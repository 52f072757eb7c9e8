"""Rows for LLaMA-Factory: those above its cutoff are left out and named."""

import json

import pytest

from schemas import FoundryError
from tests.training.sft.sft_runs import settings, write_export
from training.base_model.driver import packaged_model
from training.row_lengths import LEFT_OUT, left_out_metrics
from training.sft.recipe import SftJob, llamafactory_config, read_recipe
from training.sft.rows import prepare_rows


@pytest.fixture
def data(tmp_path):
    return write_export(tmp_path / "export", rows=6)


def job(data, **changes):
    return SftJob(
        parent=packaged_model(), data=data, datasets=["critic_sft"], settings=settings(**changes)
    )


def prepare(work, folder):
    folder.mkdir()
    return prepare_rows(work, read_recipe(work.settings), folder, print)


def lengthen(data, number):
    rows = json.loads((data / "critic_sft.json").read_text())
    rows[number]["messages"][0]["content"] += " please" * 2000
    (data / "critic_sft.json").write_text(json.dumps(rows))
    return rows


def test_the_export_itself_is_read_where_all_fit(tmp_path, data):
    assert prepare(job(data), tmp_path / "job") == data
    assert not list((tmp_path / "job").iterdir()) and not left_out_metrics(tmp_path / "job")


def test_a_row_above_the_cutoff_is_left_out_and_named(tmp_path, data):
    rows, work = lengthen(data, 2), job(data)
    folder = prepare(work, tmp_path / "job")
    left = json.loads((folder / "critic_sft.json").read_text())
    assert left == [row for number, row in enumerate(rows) if number != 2]
    named = json.loads((tmp_path / "job" / LEFT_OUT).read_text())
    assert (named["data_set"], named["row"]) == ("critic_sft", 3) and named["tokens"] > 2000
    assert named["reason"] == "longer than cutoff_len 1024"
    assert left_out_metrics(tmp_path / "job") == {"rows_left_out": 1.0}
    config = llamafactory_config(work, tmp_path / "job", folder)
    assert (config["dataset_dir"], config["media_dir"]) == (str(folder), str(data))


def test_no_row_left_is_one_line(tmp_path, data):
    with pytest.raises(FoundryError, match="all 6 rows are longer than cutoff_len 20: raise it"):
        prepare(job(data, cutoff_len=20), tmp_path / "job")


def test_damaged_exports_are_named(tmp_path, data):
    (data / "images/red.png").write_bytes(b"no picture")
    with pytest.raises(FoundryError, match=r"red\.png is no picture: materialize `exports`"):
        prepare(job(data), tmp_path / "job")
    (data / "critic_sft.json").unlink()
    with pytest.raises(FoundryError, match=r"critic_sft\.json is missing: materialize `exports`"):
        prepare(job(data), tmp_path / "other")
