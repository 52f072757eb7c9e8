"""Real steps of verl with a tiny model: rewards, progress, a kill, resumption, merge, clean-up."""

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from assets.core.profile import load_profile
from bench.gpu import grpo_rows
from inference.backends.factory import Backends
from inference.settings import LoopSettings
from tests.helpers.tiny_model import build_untrained
from tests.training.grpo.test_data import PICTURE, planner_export
from training.grpo.driver import GrpoJob, grpo_job
from training.grpo.recipe import DEV_ROWS, ROWS, CriticGrpoSettings, PlannerGrpoSettings
from training.grpo.rows import row_ids
from training.grpo.verl_options import ACTOR
from training.launch.jobs import Message, TrainerJob
from training.rewards.rollouts import rollout_rows
from warehouse import Home, Journal

WEIGHTS = "model.safetensors"
VERLS_DEV_REWARD = b"val-core/interleave_critic/reward/mean@1"
pytestmark = [pytest.mark.slow]


def backends() -> Backends:
    profile = load_profile("sketch")
    return Backends(**{name: getattr(profile, name) for name in Backends.model_fields})


def job(tmp_path: Path, steps: int, **changes: object) -> TrainerJob:
    small = {"batch": 2, "mini_batch": 2, "n": 2, "save_every": 1, "response_length": 16}
    settings = CriticGrpoSettings(**small, max_steps=steps, threads=1, **changes)
    payload = GrpoJob(
        parent=tmp_path / "parent",
        # All sequences of a batch are equally long: on those verl 0.9.1 fails without our plugin.
        data=grpo_rows(tmp_path, 24),
        settings=settings,
        root=str(tmp_path / "home"),
        roles=backends(),
        version="v1",
        loop=LoopSettings(conditioning="all"),  # of which the sketch world takes the last
    )
    return grpo_job("critic_rl", tmp_path / "job", payload)


def start(work: TrainerJob) -> subprocess.Popen[str]:
    """A driver in a session of its own, as launchers start it."""
    command = [sys.executable, "-m", work.module, str(work.write())]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=work.folder, start_new_session=True, **pipes)


def drive(work: TrainerJob) -> list[Message]:
    """Messages of a driver that ran to its end."""
    driver = start(work)
    output, errors = driver.communicate()
    assert driver.returncode == 0, output + errors
    return messages_in(output.splitlines())


def kill_after_first_step(work: TrainerJob) -> None:
    """Kill a driver when its first step, with a checkpoint, is done; all its processes end."""
    driver = start(work)
    assert driver.stdout and driver.stderr
    assert any(steps_of(messages_in([line])) for line in driver.stdout), driver.stderr.read()
    driver.kill()
    driver.wait()
    deadline = time.monotonic() + 30
    while processes_of(work.folder) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not processes_of(work.folder)


def messages_in(lines: list[str]) -> list[Message]:
    return [Message.model_validate_json(line) for line in lines if line.startswith("{")]


def read_json(lines: Path) -> list[dict]:
    return [json.loads(line) for line in lines.read_text().splitlines()]


def steps_of(messages: list[Message]) -> list[int]:
    return [m.progress.step for m in messages if m.progress]


def tensors(folder: Path) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in load_file(folder / WEIGHTS).items()}


@pytest.mark.long
def test_adapters_survive_a_kill_are_evaluated_stopped_early_and_merged(tmp_path):
    """The answers of a model that is not trained are malformed: no evaluation has a reward."""
    build_untrained(tmp_path / "parent")
    changes = {"dev_share": 0.25, "patience": 1, "parent_share": 0.5}
    changes |= {"lora_rank": 4, "tokens_per_gpu": 1024, "kl": 1e-3}
    # As on GPUs: FSDP computes in half precision, and the old log-probabilities are the trainer's.
    changes["options"] = {
        f"{ACTOR}.fsdp_config.mixed_precision.param_dtype": "bf16",
        "algorithm.rollout_correction.bypass_mode": False,
    }
    changes["reward"] = {"generators": ["sketch"]}
    work = job(tmp_path, steps=8, **changes)
    kill_after_first_step(work)
    folder, checkpoints = work.folder, work.folder / "checkpoints"
    (checkpoints / "global_step_9" / "actor").mkdir(parents=True)  # half-written
    (folder / ROWS).unlink()

    messages = drive(work)
    model, metrics = messages[-1].finished.model, messages[-1].finished.metrics
    steps, resumed = steps_of(messages), read_json(folder / "metrics-2.jsonl")[0]["step"]
    assert steps[0] == 1 < resumed <= steps[-1] == metrics["steps"]
    assert metrics["best_step"] == 1 and 2 <= metrics["steps"] < 8 and metrics["dev_reward"] == 0
    assert tensors(model) == tensors(tmp_path / "parent") and not (model / "lora_adapter").exists()
    names = {path.name for path in model.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert names & {"preprocessor_config.json", "processor_config.json"}

    dev = pq.read_metadata(folder / DEV_ROWS).num_rows
    rollouts = Journal(folder / "rollouts.jsonl").records()
    counts = Counter((row["row"]["step"], row.get("dev", False)) for row in rollouts)
    assert (counts[1, False], counts[1, True]) == (4, dev)
    assert len(rollout_rows(folder / "rollouts.jsonl")) == 4 * len(steps)  # none twice
    curves = b"".join(path.read_bytes() for path in (folder / "tensorboard").glob("events.out.*"))
    assert b"actor/pg_loss" in curves and VERLS_DEV_REWARD in curves
    assert "Using Torch backend for fused kernels" in (folder / "verl.log").read_text()

    assert drive(work) == messages  # finished: it is not trained again
    assert not processes_of(tmp_path)


@pytest.mark.long
def test_a_planner_is_reinforced_by_requests_with_and_without_pictures(tmp_path):
    """Its answers are malformed: it is right about no candidate, and not trained."""
    build_untrained(tmp_path / "parent")
    home = Home(tmp_path / "home")
    home.images.put(PICTURE)
    settings = PlannerGrpoSettings(
        **{"batch": 4, "mini_batch": 4, "n": 2, "max_steps": 1, "candidates": 2},
        **{"save_every": 1, "response_length": 16, "threads": 1},
    )
    payload = GrpoJob(
        parent=tmp_path / "parent",
        data=planner_export(tmp_path, (0, 1, 0, 1, 0, 1, 0, 1)),
        settings=settings,
        root=str(home.root),
        roles=backends(),
        version="v1",
    )
    work = grpo_job("planner_rl", tmp_path / "job", payload)
    finished = drive(work)[-1].finished
    assert tensors(finished.model) == tensors(tmp_path / "parent")
    assert finished.metrics["malformed_share"] == 1 and "accepted_share" not in finished.metrics
    folder = work.folder
    rollouts = rollout_rows(folder / "rollouts.jsonl")
    assert Counter(row.row_id for row in rollouts) == dict.fromkeys(row_ids(folder / ROWS), 2)
    answers = Counter(each["row"]["row_id"] for each in read_json(folder / "candidates.jsonl"))
    assert answers == {f"p{n}": 4 for n in range(8)}
    assert finished.metrics["candidates_left_out"] == 4
    assert finished.metrics["chosen_equal_share"] == 1
    assert {(row.status, row.truth, row.reward) for row in rollouts} == {("malformed", None, 0.0)}


def processes_of(folder: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _belongs_to(process, folder)]


def _belongs_to(process: psutil.Process, folder: Path) -> bool:
    try:
        return (
            str(folder) in " ".join(process.environ().values())
            and process.pid != psutil.Process().pid
        )
    except psutil.Error:
        return False
