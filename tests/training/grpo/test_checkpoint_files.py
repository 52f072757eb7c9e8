"""What a killed run leaves, and where it resumes."""

import zipfile
from pathlib import Path

import pytest

from training.grpo.verl_files import resume_step

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


def test_broken_checkpoints_of_one_step_get_different_names(tmp_path):
    for name in ("global_step_3.broken", "global_step_3.broken-2"):
        (checkpoint(tmp_path, 3) / "data.pt").unlink()
        tracker(tmp_path).write_text("")
        assert resume_step(tmp_path, str) == 0
        assert (tmp_path / name).is_dir() and not tracker(tmp_path).exists()
