"""Rows for LLaMA-Factory: those above its cutoff are left out and named."""

import json

import pytest
from pydantic import ValidationError

import training.sft.rows
from schemas import FoundryError
from tests.training.sft.sft_runs import settings, write_export
from training.base_model import PACKAGED_MODEL
from training.row_lengths import LEFT_OUT, left_out_metrics
from training.sft.recipe import SftJob, llamafactory_config, read_recipe
from training.sft.rows import DataSetFile, data_set_files, prepare_rows


@pytest.fixture
def data(tmp_path):
    return write_export(tmp_path / "export", rows=6)


def job(data, **changes):
    return SftJob(
        parent=PACKAGED_MODEL, data=data, datasets=["critic_sft"], settings=settings(**changes)
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


def test_rows_of_a_prompt_are_trained_on_or_evaluated(tmp_path):
    data = write_export(tmp_path / "export", rows=32)
    work = job(data, dev_share=0.25)
    folder = prepare(work, tmp_path / "job")
    trained, dev = (
        {row["prompt_id"] for row in json.loads((folder / f"{name}.json").read_text())}
        for name in ("critic_sft", "critic_sft_dev")
    )
    assert trained and dev and not trained & dev and len(trained | dev) == 16
    assert prepare(work, tmp_path / "again") != folder
    dev_file = "rows/critic_sft_dev.json"
    assert (tmp_path / "again" / dev_file).read_bytes() == (
        tmp_path / "job" / dev_file
    ).read_bytes()
    config = llamafactory_config(work, tmp_path / "job", folder)
    assert config["eval_dataset"] == "critic_sft_dev" and config["load_best_model_at_end"]


def test_data_sets_of_several_files_are_read_and_written(tmp_path, data, monkeypatch):
    rows, work = lengthen(data, 2), job(data)
    whole = json.loads((prepare(work, tmp_path / "whole") / "critic_sft.json").read_text())
    (data / "critic_sft.json").unlink()
    file = DataSetFile(data, "critic_sft", rows_per_file=2)
    for row in rows:
        file.add(row)
    info = json.loads((data / "dataset_info.json").read_text())
    info["critic_sft"] = file.close()
    (data / "dataset_info.json").write_text(json.dumps(info))
    monkeypatch.setattr(training.sft.rows, "_ROWS_PER_FILE", 2)
    folder = prepare(work, tmp_path / "job")
    files = data_set_files(folder, "critic_sft")
    assert [row for file in files for row in json.loads(file.read_text())] == whole
    assert [file.name for file in files] == [f"critic_sft-0000{n}-of-00003.json" for n in range(3)]
    assert json.loads((folder / "dataset_info.json").read_text())["critic_sft"] == {
        "script_url": "critic_sft"
    }
    (data / "critic_sft" / "critic_sft-00001-of-00003.json").unlink()
    with pytest.raises(FoundryError, match=r"critic_sft-00001-of-00003\.json is missing: mat"):
        prepare(job(data), tmp_path / "other")


def test_settings_that_leave_no_rows_are_one_line(tmp_path, data):
    with pytest.raises(FoundryError, match="6 rows to train on and 0 to evaluate: change it"):
        prepare(job(data, dev_share=0.001), tmp_path / "share")
    with pytest.raises(FoundryError, match="all 6 rows are longer than cutoff_len 20: raise it"):
        prepare(job(data, cutoff_len=20), tmp_path / "long")
    with pytest.raises(ValidationError, match="patience counts evaluations"):
        settings(patience=2)


def test_damaged_exports_are_named(tmp_path, data):
    (data / "images/red.png").write_bytes(b"no picture")
    with pytest.raises(FoundryError, match=r"red\.png cannot be read: materialize `exports`"):
        prepare(job(data), tmp_path / "job")
    (data / "critic_sft.json").write_bytes(b"[{")
    with pytest.raises(FoundryError, match=r"critic_sft\.json is damaged .*materialize `exports`"):
        prepare(job(data), tmp_path / "third")
    (data / "critic_sft.json").unlink()
    with pytest.raises(FoundryError, match=r"critic_sft\.json is missing: materialize `exports`"):
        prepare(job(data), tmp_path / "other")


def test_rows_are_repeated_as_often_as_the_job_says(tmp_path, data):
    rows = json.loads((data / "critic_sft.json").read_text())
    work = job(data).model_copy(update={"repeats": {"critic_sft": 2.5}})
    folder = prepare(work, tmp_path / "job")
    assert json.loads((folder / "critic_sft.json").read_text()) == [
        row for number, row in enumerate(rows) for _ in range(3 if number % 2 else 2)
    ]
    assert llamafactory_config(work, tmp_path / "job", folder)["dataset_dir"] == str(folder)
