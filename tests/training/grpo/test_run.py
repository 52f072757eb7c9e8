"""Two real steps of verl with a tiny model: rewards, progress, merge, resumption, clean-up."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from safetensors.torch import load_file

from assets.core.profile import load_profile
from inference.backends.factory import Backends
from training.base_model.architecture import build_untrained
from training.grpo.driver import GrpoJob, grpo_job
from training.grpo.recipe import DEV_ROWS, GrpoSettings
from training.launch.jobs import Message, TrainerJob
from training.rewards.rollouts import rollout_rows
from warehouse import EncodedImage, Home, Journal

WEIGHTS = "model.safetensors"
ROWS = 24
VERLS_DEV_REWARD = b"val-core/interleave_critic/reward/mean@1"
pytestmark = [pytest.mark.slow]
# All sequences of a batch are equally long: on those verl 0.9.1 fails without our plugin.
GOAL = "Paint a tree."


def row(index: int, before: EncodedImage, after: EncodedImage) -> dict:
    good = index % 2 == 0
    return {
        "data_source": "interleave_critic",
        "prompt": [{"role": "user", "content": f"<image><image>\nGoal: {GOAL}"}],
        "images": [{"bytes": before.data}, {"bytes": after.data}],
        "ability": "critic",
        "reward_model": {
            "style": "rule",
            "ground_truth": {"success": good, "semantics": 10.0 if good else 3.0, "quality": 9.0},
        },
        "extra_info": {
            "index": index,
            "split": "train",
            "row_id": f"row{index}",
            "origin_prompt": GOAL,
            "rewritten_prompt": "",
            "origin_image": before.sha256,
            "edited_image": after.sha256,
        },
    }


def coloured(colour: str) -> EncodedImage:
    return EncodedImage.of(Image.new("RGB", (192, 192), colour))


def export(folder: Path, home: Home) -> Path:
    folder.mkdir()
    before, after = coloured("white"), coloured("green")
    for image in (before, after):
        home.images.put(image)
    rows = [row(index, before, after) for index in range(ROWS)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "critic_rl.parquet")
    return folder


def job(tmp_path: Path, steps: int, **changes: object) -> TrainerJob:
    profile = load_profile("sketch")
    chosen = {name: getattr(profile, name) for name in Backends.model_fields}
    small = {"batch": 2, "mini_batch": 2, "n": 2, "save_every": 1, "response_length": 16}
    settings = GrpoSettings(**small, max_steps=steps, threads=1, **changes)
    payload = GrpoJob(
        parent=tmp_path / "parent",
        data=tmp_path / "export",
        settings=settings,
        root=str(tmp_path / "home"),
        roles=Backends(**chosen),
        version="v1",
        conditioning="all",  # of which the sketch world takes the last
    )
    return grpo_job("critic_rl", tmp_path / "job", payload)


def drive(work: TrainerJob) -> list[Message]:
    """Messages of a driver that ran to its end."""
    done = subprocess.run(
        [sys.executable, "-m", work.module, str(work.write())],
        capture_output=True,
        text=True,
        cwd=work.folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return [Message.model_validate(json.loads(line)) for line in lines]


def steps_of(messages: list[Message]) -> list[int]:
    return [m.progress.step for m in messages if m.progress]


@pytest.mark.long
def test_trains_evaluates_merges_resumes_and_stops_early(tmp_path):
    """The answers of a model that is not trained are malformed: no evaluation has a reward."""
    export(tmp_path / "export", Home(tmp_path / "home"))
    build_untrained(tmp_path / "parent")
    changes = {"dev_share": 0.25, "patience": 1, "parent_share": 0.5}
    folder = tmp_path / "job"
    first = drive(job(tmp_path, steps=1, **changes))
    assert steps_of(first) == [1]
    model = first[-1].finished.model
    names = {path.name for path in model.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert names & {"preprocessor_config.json", "processor_config.json"}
    assert drive(job(tmp_path, 1, **changes)) == first  # finished: it is not trained again

    dev = pq.read_metadata(folder / DEV_ROWS).num_rows
    rollouts = Journal(folder / "rollouts.jsonl").records()
    assert Counter(each.get("dev", False) for each in rollouts) == {False: 4, True: dev}
    assert len(rollout_rows(folder / "rollouts.jsonl")) == 4
    assert first[0].progress.extra["dev_reward"] == 0 == first[-1].finished.metrics["dev_reward"]
    (events,) = (folder / "tensorboard").glob("events.out.tfevents.*")
    curves = events.read_bytes()
    assert b"actor/pg_loss" in curves and VERLS_DEV_REWARD in curves

    torn = folder / "checkpoints" / "global_step_2" / "actor"
    torn.mkdir(parents=True)
    before = (model / WEIGHTS).read_bytes()
    model.rename(tmp_path / "first-model")
    (folder / "critic_rl.parquet").unlink()
    again = drive(job(tmp_path, steps=8, **changes))
    metrics = again[-1].finished.metrics
    assert steps_of(again)[:2] == [1, 2]
    assert (folder / "checkpoints" / "global_step_2.broken").is_dir()
    assert metrics["best_step"] == 1 and 2 <= metrics["steps"] < 8
    assert (again[-1].finished.model / WEIGHTS).read_bytes() == before

    assert not [p for p in psutil.process_iter() if _belongs_to(p, tmp_path)]


@pytest.mark.nightly
def test_adapters_are_trained_with_dynamic_batches_and_merged(tmp_path):
    export(tmp_path / "export", Home(tmp_path / "home"))
    build_untrained(tmp_path / "parent")
    changes = {"lora_rank": 4, "tokens_per_gpu": 1024, "kl": 1e-3, "learning_rate": 0.01}
    changes["reward"] = {"generators": ["sketch"]}
    model = drive(job(tmp_path, 1, **changes))[-1].finished.model
    parent, trained = (load_file(folder / WEIGHTS) for folder in (tmp_path / "parent", model))
    assert parent.keys() == trained.keys() and not (model / "lora_adapter").exists()


def _belongs_to(process: psutil.Process, folder: Path) -> bool:
    try:
        return (
            str(folder) in " ".join(process.environ().values())
            and process.pid != psutil.Process().pid
        )
    except psutil.Error:
        return False
