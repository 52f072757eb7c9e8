"""A small export for LLaMA-Factory, a tiny model, and the driver as a launcher starts it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image

from training.sft.driver import sft_job
from training.sft.recipe import SftJob, SftSettings

COLOURS = ("red", "green", "blue", "black")


def write_export(folder: Path, rows: int = 32) -> Path:
    """Rows about the colour of the second image, in the layout of `exports`."""
    (folder / "images").mkdir(parents=True)
    for colour in (*COLOURS, "white"):
        Image.new("RGB", (96, 96), colour).save(folder / f"images/{colour}.png")
    samples = [_sample(COLOURS[i % 4], COLOURS[i // 4 % 4]) for i in range(rows)]
    (folder / "critic_sft.json").write_text(json.dumps(samples))
    declared = {
        "file_name": "critic_sft.json",
        "formatting": "sharegpt",
        "columns": {"messages": "messages", "images": "images"},
        "tags": {
            "role_tag": "role",
            "content_tag": "content",
            "user_tag": "user",
            "assistant_tag": "assistant",
        },
    }
    (folder / "dataset_info.json").write_text(json.dumps({"critic_sft": declared}))
    return folder


def _sample(expected: str, shown: str) -> dict[str, object]:
    success = json.dumps(expected == shown)
    answer = {"previous_step_success": expected == shown, "refine_prompt": ""}
    thought = f"want {expected}, see {shown}: {success}"
    return {
        "messages": [
            {"role": "user", "content": f"<image><image>\nGoal: Paint it {expected}."},
            {
                "role": "assistant",
                "content": f"<think>{thought}</think>\n<answer>{json.dumps(answer)}</answer>",
            },
        ],
        "images": ["images/white.png", f"images/{shown}.png"],
        "row_id": f"{expected}-{shown}",
        "prompt_id": f"{expected}-{shown}",
    }


def settings(**changes: object) -> SftSettings:
    """Eight steps of four samples, saved every other step, on one thread."""
    options = {"logging_steps": 1, "preprocessing_num_workers": 1}
    small = {"max_steps": 8, "batch": 4, "save_steps": 2, "threads": 1, "options": options}
    return SftSettings.model_validate(small | changes)


class Training:
    """The driver of one job, in a process of its own."""

    def __init__(self, folder: Path, parent: Path, data: Path, how: SftSettings) -> None:
        self.folder = folder
        payload = SftJob(parent=parent, data=data, datasets=["critic_sft"], settings=how)
        self.job = sft_job("critic", folder, payload)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", self.job.module, str(self.job.write())]
        return subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self) -> tuple[list[dict], str]:
        """Run it to its end; returns its messages and its output."""
        output, _ = self.start().communicate(timeout=1800)
        lines = output.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")], output

    def kill_at(self, checkpoint: str) -> None:
        """Kill driver and trainer with SIGKILL as soon as a checkpoint is there."""
        process = self.start()
        deadline = time.monotonic() + 1800
        while not (self.checkpoints / checkpoint / "trainer_state.json").exists():
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def weights(self) -> bytes:
        return (self.folder / "model" / "model.safetensors").read_bytes()
