"""Which checkpoints are complete, and what happens to the others."""

import json
import zipfile

import pytest

from training.sft import llamafactory_files as files


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
