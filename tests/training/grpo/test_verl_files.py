"""verl's checkpoints and metrics: where a run resumes, its curves, which model is kept."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from inference.backends.checkpoint.model import load_weights
from tests.helpers.tiny_model import build_untrained
from training.grpo.recipe import CriticGrpoSettings
from training.grpo.verl_files import (
    DevEvaluations,
    GrpoLogFollower,
    average_with_parent,
    final_metrics,
    points_up_to,
    resume_step,
)
from warehouse import Journal

PARTS = ("model", "optim", "extra")
WEIGHTS = "model.safetensors"


def archive(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as stream:
        stream.writestr("archive/data.pkl", b"0" * 100)


def checkpoint(root: Path, step: int) -> Path:
    folder = root / f"global_step_{step}"
    for part in PARTS:
        archive(folder / "actor" / f"{part}_world_size_1_rank_0.pt")
    archive(folder / "data.pt")
    return folder


def tracker(root: Path) -> Path:
    return root / "latest_checkpointed_iteration.txt"


def test_resumes_from_the_newest_complete_checkpoint(tmp_path):
    checkpoint(tmp_path, 2)
    checkpoint(tmp_path, 10)
    tracker(tmp_path).write_text("2")
    lines = []
    assert resume_step(tmp_path, lines.append) == 10 and not lines
    assert tracker(tmp_path).read_text() == "10"
    assert resume_step(tmp_path / "none", str) == 0


@pytest.mark.parametrize("file", ["data.pt", "actor/optim_world_size_1_rank_0.pt"])
@pytest.mark.parametrize("half", [False, True])
def test_a_half_written_checkpoint_is_moved_away(tmp_path, file, half):
    checkpoint(tmp_path, 4)
    broken = checkpoint(tmp_path, 6) / file
    broken.write_bytes(broken.read_bytes()[:60]) if half else broken.unlink()
    lines = []
    assert resume_step(tmp_path, lines.append) == 4
    assert lines == [f"a half-written checkpoint was moved to {tmp_path}/global_step_6.broken"]
    assert not (tmp_path / "global_step_6").exists()
    assert (tmp_path / "global_step_6.broken").is_dir()
    assert tracker(tmp_path).read_text() == "4"
    assert resume_step(tmp_path, lines.append) == 4 and len(lines) == 1
    (tmp_path / "global_step_4" / "data.pt").unlink()
    assert resume_step(tmp_path, lines.append) == 0 and not tracker(tmp_path).exists()


@pytest.fixture
def run(tmp_path):
    """Makes the evaluations of a run: step -> reward, None where there was no evaluation."""

    def make(rewards: dict[int, float | None], patience: int | None = None) -> DevEvaluations:
        curves = Journal(tmp_path / "progress.jsonl")
        for step, reward in rewards.items():
            extra = {"entropy": 1.0} | ({} if reward is None else {"dev_reward": reward})
            curves.append({"step": step, "total": 9, "reward": 0.5, "extra": extra})
            (tmp_path / "checkpoints" / f"global_step_{step}").mkdir(parents=True, exist_ok=True)
        return DevEvaluations(curves, tmp_path / "checkpoints", patience)

    return make


def names(evaluations: DevEvaluations) -> list[str]:
    return sorted(path.name for path in evaluations.checkpoints.iterdir())


def test_the_best_checkpoint_is_the_first_with_the_highest_reward(run):
    evaluations = run({1: 0.2, 2: 0.6, 3: None, 4: 0.6, 5: 0.4})
    assert (evaluations.best(5), evaluations.best(1), evaluations.best(0)) == (2, 1, None)
    (evaluations.checkpoints / "global_step_2").rename(evaluations.checkpoints / "broken")
    assert evaluations.best(2) == 1


def test_checkpoints_other_than_the_best_and_the_last_are_removed(run):
    evaluations = run({1: 0.2, 2: 0.6, 3: 0.5, 4: 0.4})
    (evaluations.checkpoints / "global_step_5").mkdir()  # being written
    (evaluations.checkpoints / "global_step_0.removed").mkdir()  # by a run that was killed
    evaluations.conclude(4, print)
    assert names(evaluations) == ["global_step_2", "global_step_4", "global_step_5"]


def test_training_stops_after_evaluations_without_improvement(run):
    lines = []
    evaluations = run({1: 0.2, 2: 0.6, 3: 0.6, 4: 0.5, 5: 0.9}, patience=2)
    assert [evaluations.stop_training(step) for step in (2, 3, 4, 5)] == [False, False, True, True]
    evaluations.conclude(3, lines.append)
    assert "stop" not in names(evaluations) and not lines
    evaluations.conclude(4, lines.append)
    assert "stop" in names(evaluations)
    assert lines == ["step 4: no better than step 2, so training stops"]
    assert not run({}, patience=None).stop_training(5)


def test_final_figures_are_those_of_the_best_evaluation_and_the_last_steps(run):
    evaluations = run({1: 0.6, 2: 0.2})
    points = points_up_to(2, evaluations.curves)
    expected = {"dev_reward": 0.6, "best_step": 1, "steps": 2, "reward": 0.5, "entropy": 1.0}
    assert final_metrics(points, evaluations.best(2)) == expected
    assert "dev_reward" not in final_metrics(points, None)


def line(step: int, seconds: float = 8.0) -> str:
    data = {"timing_s/step": seconds, "actor/pg_loss": 0.5, "actor/lr": 1e-5}
    data |= {"actor/entropy_loss": 1.5, "critic/score/mean": None}
    return json.dumps({"step": step, "data": data}) + "\n"


@pytest.fixture
def metrics(tmp_path):
    return tmp_path / "metrics.jsonl"


@pytest.fixture
def follower(metrics):
    settings = CriticGrpoSettings(batch=4, mini_batch=4, n=2)
    return GrpoLogFollower(metrics, 10, settings, lambda _step: [], lambda _step: [])


def test_every_step_is_reported_once(follower, metrics):
    assert list(follower.new_points()) == []
    metrics.write_text(line(1) + line(2)[:20])
    assert [point.step for point in follower.new_points()] == [1]
    metrics.write_text(line(1) + line(2) + line(3))
    assert [point.step for point in follower.new_points()] == [2, 3]
    assert list(follower.new_points()) == []


def test_a_point_has_speed_time_left_and_figures(follower, metrics):
    metrics.write_text(line(4, seconds=2.0))
    (point,) = follower.new_points()
    assert (point.step, point.total, point.loss, point.learning_rate) == (4, 10, 0.5, 1e-5)
    assert (point.samples_per_second, point.seconds_left) == (4.0, 12.0)
    assert point.extra == {"entropy": 1.5, "seconds": 2.0}
    # Without entropy in the loss, its curve is that of the pass before.
    more = line(5).replace("actor/entropy_loss", "actor/entropy")
    metrics.write_text(line(4, seconds=2.0) + more)
    assert next(follower.new_points()).extra["entropy"] == 1.5


def test_curves_have_every_step_once_as_trained_last(tmp_path):
    curves = Journal(tmp_path / "progress.jsonl")
    for step, loss in ((1, 0.9), (2, 0.8), (3, 0.7), (2, 0.6)):  # killed after 3, resumed at 1
        curves.append({"step": step, "total": 5, "loss": loss})
    points = points_up_to(2, curves)
    assert [(point.step, point.loss) for point in points] == [(1, 0.9), (2, 0.6)]


@pytest.fixture
def folders(tmp_path):
    """A model whose weights are its parent's plus one, in bfloat16, and the parent."""
    parent, model = tmp_path / "parent", tmp_path / "model"
    build_untrained(parent, hidden=96, layers=2)
    shutil.copytree(parent, model)
    for folder, added in ((parent, 0), (model, 1)):
        weights = load_weights(folder, dtype=torch.bfloat16)
        with torch.no_grad():
            for each in weights.parameters():
                each.add_(added)
        weights.save_pretrained(folder)
    return model, parent


def test_weights_lie_between_both_and_the_other_files_stay(folders):
    model, parent = folders
    before = {path.name: path.read_bytes() for path in model.iterdir() if path.name != WEIGHTS}
    trained, start = load_file(model / WEIGHTS), load_file(parent / WEIGHTS)
    average_with_parent(model, parent, 0.25)
    averaged = load_file(model / WEIGHTS)
    assert averaged.keys() == trained.keys()
    for name, each in averaged.items():
        expected = 0.75 * trained[name].float() + 0.25 * start[name].float()
        assert each.dtype == torch.bfloat16 and torch.equal(each, expected.bfloat16()), name
    after = {path.name: path.read_bytes() for path in model.iterdir() if path.name != WEIGHTS}
    assert after == before and {*model.parent.iterdir()} == {parent, model}
    load_weights(model)
