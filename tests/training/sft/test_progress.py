"""LLaMA-Factory's log as progress."""

import json

import pytest

from training.sft.llamafactory_files import SftLogFollower, truncate_log


@pytest.fixture
def log(tmp_path):
    return tmp_path / "trainer_log.jsonl"


def add(log, *steps, total=100):
    with log.open("a") as file:
        for step in steps:
            record = {"current_steps": step, "total_steps": total, "loss": 1 / step, "lr": 1e-3}
            file.write(json.dumps(record | {"epoch": step / 50}) + "\n")


def test_speed_and_time_left_follow_from_the_clock(log):
    now = iter([0.0, 5.0, 15.0])
    follower = SftLogFollower(log, batch=32, done=0, clock=lambda: next(now))
    add(log, 10)
    first = list(follower.new_points())
    add(log, 20)
    second = list(follower.new_points())
    add(log, 30)
    third = list(follower.new_points())
    assert (first[0].samples_per_second, first[0].seconds_left) == (None, None)
    assert (second[0].samples_per_second, second[0].seconds_left) == (64, 40)
    assert (third[0].samples_per_second, third[0].seconds_left) == (32, pytest.approx(52.5))
    assert (third[0].step, third[0].total, third[0].learning_rate) == (30, 100, 1e-3)
    assert third[0].extra == {"epoch": 0.6}


def test_a_half_written_line_is_read_when_complete(log):
    follower = SftLogFollower(log, batch=1, done=0)
    assert list(follower.new_points()) == []
    add(log, 1, 2)
    content = log.read_bytes()
    log.write_bytes(content[:-9])
    assert [point.step for point in follower.new_points()] == [1]
    log.write_bytes(content)
    assert [point.step for point in follower.new_points()] == [2]


def test_the_summary_at_the_end_is_no_point(log):
    add(log, 100)
    with log.open("a") as file:
        file.write(json.dumps({"current_steps": 100, "total_steps": 100, "epoch": 2.0}) + "\n")
    follower = SftLogFollower(log, batch=1, done=0)
    assert len(list(follower.new_points())) == 1
    assert follower.final_metrics() == {"loss": pytest.approx(0.01)}


def test_steps_of_earlier_attempts_have_no_speed(log):
    now = iter([0.0, 2.0])
    follower = SftLogFollower(log, batch=8, done=20, clock=lambda: next(now))
    add(log, 10, 20)
    assert [point.samples_per_second for point in follower.new_points()] == [None, None]
    add(log, 30)
    assert next(follower.new_points()).samples_per_second is None
    add(log, 40)
    assert next(follower.new_points()).samples_per_second == 40


def test_steps_after_the_checkpoint_are_removed(log):
    truncate_log(log, 0)
    assert not log.exists()
    add(log, 10, 20, 30)
    with log.open("a") as file:
        file.write('{"current_steps": 4')
    truncate_log(log, 20)
    add(log, 30)
    steps = [json.loads(line)["current_steps"] for line in log.read_text().splitlines()]
    assert steps == [10, 20, 30]
