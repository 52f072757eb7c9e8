"""Data sets of several files, read by LLaMA-Factory's own loader."""

import json
import os
from pathlib import Path

import pytest

from inference.environments import ensure_environment
from tests.training.sft.sft_runs import settings, write_export
from tests.training.trainer_parsers import parse_all
from training.base_model import PACKAGED_MODEL
from training.sft.data_files import DataSetFile
from training.sft.recipe import SftJob, llamafactory_config

PARSER = Path(__file__).parent / "load_rows.py"
PICTURELESS = 9  # rows at the end, without a prompt


def in_parts(data: Path) -> list[dict]:
    """Rewrite the export as files of four rows, of which the last have no pictures."""
    rows = json.loads((data / "critic_sft.json").read_text())
    (data / "critic_sft.json").unlink()
    for number, row in enumerate(rows):
        row["messages"][1]["content"] = f"<think>row</think>\n<answer>{number}</answer>"
        if number >= len(rows) - PICTURELESS:
            row["messages"][0]["content"] = "Go on."
            row |= {"images": [], "prompt_id": None}
    file = DataSetFile(data, "critic_sft", rows_per_file=4)
    for row in rows:
        file.add(row)
    info = json.loads((data / "dataset_info.json").read_text())
    info["critic_sft"].pop("file_name")
    (data / "dataset_info.json").write_text(
        json.dumps({"critic_sft": {**file.close(), **info["critic_sft"]}})
    )
    return rows


@pytest.mark.slow
def test_llamafactory_reads_them_in_order(tmp_path):
    """In one process and in two, where the second sees no picture."""
    data = write_export(tmp_path / "export", rows=32)
    rows = in_parts(data)
    assert len(list((data / "critic_sft").glob("*.json"))) == 8
    cases = {}
    for workers in (1, 2):
        changed = settings(options={"logging_steps": 1, "preprocessing_num_workers": workers})
        job = SftJob(parent=PACKAGED_MODEL, data=data, datasets=["critic_sft"], settings=changed)
        cases[str(workers)] = llamafactory_config(job, tmp_path)
    loaded = parse_all(ensure_environment("sft", "cpu"), PARSER, cases, os.environ)
    for result in loaded.values():
        numbers = [int(text.split("<answer>")[1].split("<")[0]) for [text] in result["answers"]]
        assert numbers == list(range(len(rows)))
        assert [len(images or ()) for images in result["images"]] == [
            len(row["images"]) for row in rows
        ]
