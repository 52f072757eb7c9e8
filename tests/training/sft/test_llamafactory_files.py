"""LLaMA-Factory's checkpoints, of which the complete ones count, and its log as progress."""

import json
import zipfile

import pytest

from training.sft import llamafactory_files as files
from training.sft.llamafactory_files import SftLogFollower, truncate_log


def safetensors(size=8):
    header = {
        "weight": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]},
        "__metadata__": {"format": "pt"},
    }
    packed = json.dumps(header).encode()
    return len(packed).to_bytes(8, "little") + packed + bytes(size)


def archive(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data", b"0" * 100)


@pytest.fixture
def checkpoints(tmp_path):
    """Two complete checkpoints, of ten steps and of the last twenty."""
    for step in (10, 20):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        state = {"global_step": step, "max_steps": 20}
        (folder / "trainer_state.json").write_text(json.dumps(state))
        (folder / "model.safetensors").write_bytes(safetensors())
        for name in ("config.json", "processor_config.json", "tokenizer.json"):
            (folder / name).write_text('{"a": 1}')
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
            archive(folder / name)
    return tmp_path


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def test_resumes_from_the_newest_complete_checkpoint(checkpoints):
    lines = []
    newest = files.newest_checkpoint(checkpoints, lines.append)
    assert newest == checkpoints / "checkpoint-20"
    assert not lines and files.is_final(newest)
    assert files.newest_checkpoint(checkpoints / "none", str) is None


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_half_written_checkpoint_is_not_complete(checkpoints, damage):
    folder = checkpoints / "checkpoint-20"
    needed = ["trainer_state.json", "model.safetensors", "processor_config.json"]
    needed += ["optimizer.pt", "scheduler.pt"]
    for name in [*needed, *(["rng_state.pth"] if damage == "truncated" else [])]:
        path = folder / name
        content = path.read_bytes()
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(content[:5] if path.suffix == ".json" else content[:-20])
        assert not files.is_complete(folder), name
        path.write_bytes(content)
        assert files.is_complete(folder), name


def test_half_written_checkpoints_are_moved_away(checkpoints):
    (checkpoints / "checkpoint-20.broken").mkdir()  # of an earlier attempt
    (checkpoints / "checkpoint-20" / "optimizer.pt").unlink()
    lines = []
    newest = files.newest_checkpoint(checkpoints, lines.append)
    assert newest == checkpoints / "checkpoint-10" and not files.is_final(newest)
    broken = checkpoints / "checkpoint-20.broken-2"
    assert lines == [f"a half-written checkpoint was moved to {broken}"]
    assert (broken / "config.json").is_file()


def test_a_partly_deleted_older_checkpoint_is_moved_away_too(checkpoints):
    (checkpoints / "checkpoint-10" / "config.json").unlink()
    (checkpoints / "checkpoint-10" / "model.safetensors").unlink()
    newest = files.newest_checkpoint(checkpoints, str)
    assert newest == checkpoints / "checkpoint-20"
    assert (checkpoints / "checkpoint-10.broken").is_dir()


def test_shards_that_the_index_names_must_be_there(checkpoints):
    folder = checkpoints / "checkpoint-20"
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    assert not files.is_complete(folder)
    (folder / "model-2.safetensors").write_bytes(safetensors())
    assert files.is_complete(folder)


def test_deepspeed_has_its_optimizer_in_a_folder(checkpoints):
    folder = checkpoints / "checkpoint-20"
    (folder / "optimizer.pt").unlink()
    (folder / "latest").write_text("global_step20")
    assert not files.is_complete(folder)
    (folder / "global_step20").mkdir()
    archive(folder / "global_step20" / "zero_pp_rank_0_optim_states.pt")
    assert files.is_complete(folder)
    truncate(folder / "global_step20" / "zero_pp_rank_0_optim_states.pt")
    assert not files.is_complete(folder)


def test_a_copied_model_has_no_training_state(checkpoints, tmp_path):
    files.copy_model(checkpoints / "checkpoint-20", tmp_path / "model")
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {"model.safetensors", "config.json", "processor_config.json", "tokenizer.json"}


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
