"""What is left of a killed run, and where it goes on."""

import zipfile
from pathlib import Path

import pytest

from training.grpo.checkpoint_files import actor, prepare_resume

PARTS = ("model", "optim", "extra")


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


def test_nothing_is_there_yet(tmp_path):
    assert prepare_resume(tmp_path / "checkpoints") == (0, [])


def test_the_newest_whole_one_is_taken_up(tmp_path):
    checkpoint(tmp_path, 2)
    checkpoint(tmp_path, 10)
    tracker(tmp_path).write_text("2")
    assert prepare_resume(tmp_path) == (10, [])
    assert tracker(tmp_path).read_text() == "10"
    assert actor(tmp_path, 10) == tmp_path / "global_step_10" / "actor"


@pytest.mark.parametrize("lost", ["data.pt", "actor/optim_world_size_1_rank_0.pt"])
@pytest.mark.parametrize("half", [False, True])
def test_a_half_written_one_is_set_aside(tmp_path, lost, half):
    checkpoint(tmp_path, 4)
    broken = checkpoint(tmp_path, 6) / lost
    broken.write_bytes(broken.read_bytes()[:60]) if half else broken.unlink()
    assert prepare_resume(tmp_path) == (4, [tmp_path / "global_step_6.broken"])
    assert not (tmp_path / "global_step_6").exists()
    assert tracker(tmp_path).read_text() == "4"
    assert prepare_resume(tmp_path) == (4, [])


def test_the_same_step_may_break_twice(tmp_path):
    for name in ("global_step_3.broken", "global_step_3.broken-2"):
        (checkpoint(tmp_path, 3) / "data.pt").unlink()
        assert prepare_resume(tmp_path) == (0, [tmp_path / name])


def test_a_tracker_of_nothing_is_removed(tmp_path):
    (checkpoint(tmp_path, 3) / "data.pt").unlink()
    tracker(tmp_path).write_text("")
    prepare_resume(tmp_path)
    assert not tracker(tmp_path).exists()
