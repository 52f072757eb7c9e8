"""Overhead of driver and launcher over the bare trainer command, for the same short training."""

import asyncio
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import dagster as dg
import yaml
from PIL import Image

from inference.calls.progress import NullProgress
from inference.environments import ensure_environment
from training.base_model import PACKAGED_MODEL
from training.launch.jobs import LauncherSettings
from training.launch.launcher import run_job
from training.sft.driver import sft_job
from training.sft.recipe import SftJob, SftSettings, environment, llamafactory_config, read_recipe

ROWS = 256
SETTINGS = SftSettings(max_steps=120, batch=16)
REPEATS = 3

MEANING = {
    "training_overhead_share": (
        f"wall time of a {SETTINGS.max_steps}-step SFT through asset, launcher and driver, "
        "relative to `llamafactory-cli train` with the same YAML; minus 1 "
        f"(medians of {REPEATS}, taking turns)",
        "<= 0.03",
    ),
    "training_samples_per_second": (
        "critic-like samples of the bare command, start-up included",
        "",
    ),
}


def measure() -> dict[str, float]:
    """Every number by name."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = _data(folder / "data")
        bare, ours = [], []
        for number in range(REPEATS):
            bare.append(_trainer_seconds(folder / f"bare{number}", data))
            ours.append(_launcher_seconds(folder / f"ours{number}", data))
    samples = (SETTINGS.max_steps or 0) * (SETTINGS.batch or 0)
    return {
        "training_overhead_share": median(ours) / median(bare) - 1,
        "training_samples_per_second": samples / median(bare),
    }


def _data(folder: Path) -> Path:
    """An export of simple verdicts in LLaMA-Factory's form."""
    folder.mkdir()
    colours = ("red", "green", "blue", "orange")
    for colour in colours:
        Image.new("RGB", (96, 96), colour).save(folder / f"{colour}.png")
    rows = [_row(colours[n % 4], colours[n // 4 % 4]) for n in range(ROWS)]
    (folder / "critic.json").write_text(json.dumps(rows), "utf-8")
    columns = {"messages": "messages", "images": "images"}
    tags = {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
    }
    entry = {"file_name": "critic.json", "formatting": "sharegpt", "columns": columns, "tags": tags}
    (folder / "dataset_info.json").write_text(json.dumps({"critic": entry}), "utf-8")
    return folder


def _row(before: str, after: str) -> dict[str, object]:
    question = f"<image><image>\nGoal: Paint everything {after}."
    answer = " ".join([f"want {after}, see {after}, right."] * 8)
    return {
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        ],
        "images": [f"{before}.png", f"{after}.png"],
    }


def _trainer_seconds(folder: Path, data: Path) -> float:
    folder.mkdir()
    python = ensure_environment("sft", "cpu")
    config = llamafactory_config(_job(data), folder)
    (folder / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    variables = {**os.environ, **environment(read_recipe(SETTINGS), python, folder)}
    command = [python.with_name("llamafactory-cli"), "train", folder / "config.yaml"]
    start = time.perf_counter()
    subprocess.run(command, env=variables, check=True, capture_output=True)
    return time.perf_counter() - start


def _launcher_seconds(folder: Path, data: Path) -> float:
    job = sft_job("bench", folder, _job(data))

    @dg.asset
    def trained(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        asyncio.run(run_job(context, job, LauncherSettings(), NullProgress()))
        return dg.MaterializeResult()

    with dg.DagsterInstance.ephemeral() as instance:
        start = time.perf_counter()
        dg.materialize([trained], instance=instance)
        return time.perf_counter() - start


def _job(data: Path) -> SftJob:
    return SftJob(parent=PACKAGED_MODEL, data=data, datasets=["critic"], settings=SETTINGS)
