"""verl's metrics as progress, and curves that survive a killed run."""

import json

import pytest

from training.grpo.recipe import CriticGrpoSettings
from training.grpo.verl_files import GrpoLogFollower, points_up_to
from warehouse import Journal


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
