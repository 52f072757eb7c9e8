"""lmms-eval's own runner drives our service, on a few items of the official forms.

lmms-eval needs some hundred packages and is not installed for tests: name a Python that has it with
INTERLEAVE_LMMS_EVAL. What it asks of our service is tested with OpenAI's client elsewhere.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.assets.benchmarks.conftest import JsonServer, chat_completion, serving
from tests.helpers.browser import interleave_serve

PYTHON = os.environ.get("INTERLEAVE_LMMS_EVAL")
TASKS = Path(__file__).parents[3] / "assets" / "benchmarks" / "lmms_eval"
UEVAL = {
    "id": "1",
    "prompt": "Show in 3 pictures how a red flower grows, with captions.",
    "task_type": "guide",
    "question_type": "open",
    "text_ref": "",
    "image_ref": [],
    "text_rubrics": [{"criterion": "Names the seed."}, {"criterion": "Names the soil."}],
    "image_rubrics": [{"criterion": "Shows a flower."}],
}
WISE = {
    "prompt_id": 401,
    "Prompt": "Draw a red house beside a tree.",
    "Category": "Time",
    "Subcategory": "Horizontal time",
    "Explanation": "A house and a tree.",
}


class LmmsJudge(JsonServer):
    """Meets every criterion but one; gives WISE's pictures 2, 1 and 0."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def reply(self, path, text):
        self.asked.append(text)
        if "generateContent" not in path:
            return chat_completion("Consistency: 2\nRealism: 1\nAesthetic Quality: 0")
        met = json.dumps({"explanation": "so", "criteria_met": "Names the soil." not in text})
        part = {"content": {"role": "model", "parts": [{"text": met}]}, "finishReason": "STOP"}
        return {"candidates": [part]}


@pytest.fixture
def judge():
    with serving(LmmsJudge()) as server:
        yield server


def task_files(folder, **items):
    """The task files, with local items in place of the Hub's."""
    folder.mkdir()
    (folder / "service_answers.py").write_text((TASKS / "service_answers.py").read_text())
    for name, item in items.items():
        data = folder / f"{name}.json"
        data.write_text(json.dumps([item]))
        lines = (TASKS / f"{name}_service.yaml").read_text().splitlines()
        local = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}"
        changed = [local if line.startswith("dataset_path:") else line for line in lines]
        (folder / f"{name}_service.yaml").write_text("\n".join(changed) + "\n")
    return folder


def test_task_files_name_functions_that_are_there():
    source = (TASKS / "service_answers.py").read_text()
    for path in TASKS.glob("*.yaml"):
        names = [
            line.rpartition(".")[2] for line in path.read_text().splitlines() if "!func" in line
        ]
        ours = {
            name for name in names if not name.startswith(("ueval_", "wise_")) or "results" in name
        }
        assert ours and all(f"def {name}(" in source for name in ours)
        plain = path.read_text().replace("!function ", "")
        assert yaml.safe_load(plain)["task"] == path.stem


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(PYTHON is None, reason="INTERLEAVE_LMMS_EVAL names no Python with lmms-eval")
def test_its_runner_measures_the_service(judge, tmp_path):
    folder = task_files(tmp_path / "tasks", ueval=UEVAL, wise=WISE)
    variables = {
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "1",
        "GOOGLE_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": judge.url,
        "WISE_API_KEY": "none",
        "WISE_BASE_URL": f"{judge.url}/v1",
        "INTERLEAVE_LMMS_EVAL_PICTURES": str(tmp_path / "pictures"),
    }
    with interleave_serve(tmp_path / "home") as service:
        arguments = f"model_version=interleave,base_url={service}/v1,api_key=none"
        command = [PYTHON, "-m", "lmms_eval", "--model", "openai", "--model_args", arguments]
        command += ["--include_path", str(folder), "--tasks", "ueval_service,wise_service"]
        command += ["--batch_size", "1", "--output_path", str(tmp_path / "results")]
        done = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, cwd=tmp_path
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (path,) = (tmp_path / "results").rglob("*results.json")
    results = json.loads(path.read_text())["results"]
    assert results["ueval_service"]["text_score,none"] == pytest.approx(0.5)
    assert results["ueval_service"]["image_score,none"] == pytest.approx(1.0)
    assert results["wise_service"]["WISE_time_score,none"] == pytest.approx((0.7 * 2 + 0.2) / 2)
    assert len(list((tmp_path / "pictures").iterdir())) >= 4
    assert any("inlineData" in asked or "inline_data" in asked for asked in judge.asked)
