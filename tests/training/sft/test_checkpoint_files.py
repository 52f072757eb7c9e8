"""Which checkpoints are whole, and what becomes of the others."""

import json
import zipfile

import pytest

from training.sft import checkpoint_files


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
    """Two whole checkpoints, of ten steps and of the last twenty."""
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


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def test_the_newest_whole_one_is_taken_up(checkpoints):
    newest, aside = checkpoint_files.prepare_resume(checkpoints)
    assert newest == checkpoints / "checkpoint-20"
    assert not aside and checkpoint_files.is_final(newest)


def test_nothing_is_taken_up_where_nothing_is(tmp_path):
    assert checkpoint_files.prepare_resume(tmp_path / "none") == (None, [])


@pytest.mark.parametrize(
    "name",
    [
        "trainer_state.json",
        "model.safetensors",
        "processor_config.json",
        "optimizer.pt",
        "scheduler.pt",
    ],
)
@pytest.mark.parametrize("harm", ["cut", "lost"])
def test_a_half_written_one_is_set_aside(checkpoints, name, harm):
    path = checkpoints / "checkpoint-20" / name
    if harm == "cut" and path.suffix == ".json":
        path.write_text(path.read_text()[:5])
    elif harm == "cut":
        cut(path)
    else:
        path.unlink()
    newest, aside = checkpoint_files.prepare_resume(checkpoints)
    assert newest == checkpoints / "checkpoint-10"
    assert aside == [checkpoints / "checkpoint-20.broken"] and aside[0].is_dir()
    assert not checkpoint_files.is_final(newest)


def test_random_states_are_looked_at(checkpoints):
    cut(checkpoints / "checkpoint-20" / "rng_state.pth")
    assert checkpoint_files.half_written(checkpoints) == [checkpoints / "checkpoint-20"]


def test_an_older_one_that_was_being_deleted_is_set_aside_too(checkpoints):
    (checkpoints / "checkpoint-10" / "config.json").unlink()
    (checkpoints / "checkpoint-10" / "model.safetensors").unlink()
    newest, aside = checkpoint_files.prepare_resume(checkpoints)
    assert newest == checkpoints / "checkpoint-20" and len(aside) == 1


def test_earlier_ones_set_aside_are_kept(checkpoints):
    (checkpoints / "checkpoint-20.broken").mkdir()
    (checkpoints / "checkpoint-20" / "optimizer.pt").unlink()
    assert checkpoint_files.prepare_resume(checkpoints)[1] == [
        checkpoints / "checkpoint-20.broken-2"
    ]


def test_shards_that_the_index_names_must_be_there(checkpoints):
    folder = checkpoints / "checkpoint-20"
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    assert not checkpoint_files.is_complete(folder)
    (folder / "model-2.safetensors").write_bytes(safetensors())
    assert checkpoint_files.is_complete(folder)


def test_deepspeed_keeps_its_optimizer_in_a_folder(checkpoints):
    folder = checkpoints / "checkpoint-20"
    (folder / "optimizer.pt").unlink()
    (folder / "latest").write_text("global_step20")
    assert not checkpoint_files.is_complete(folder)
    (folder / "global_step20").mkdir()
    archive(folder / "global_step20" / "zero_pp_rank_0_optim_states.pt")
    assert checkpoint_files.is_complete(folder)
    cut(folder / "global_step20" / "zero_pp_rank_0_optim_states.pt")
    assert not checkpoint_files.is_complete(folder)


def test_a_model_is_without_what_only_training_needs(checkpoints, tmp_path):
    checkpoint_files.copy_model(checkpoints / "checkpoint-20", tmp_path / "model")
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {"model.safetensors", "config.json", "processor_config.json", "tokenizer.json"}
