"""A Ray that starts too slowly is started again; other failures end the training."""

from pathlib import Path

import pytest

from tests.training.grpo.test_run import job
from training.grpo import driver as module
from training.grpo.driver import GrpoRun
from training.launch.driver import Driver, TrainingFailedError

TIMED_OUT = "Exception: The current node timed out during startup. This could happen"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose Python is a script that fails as often as a file says, with its first line."""
    python = tmp_path / "python"
    python.write_text(
        f"""#!/usr/bin/env bash
[ -d "$RAY_TMPDIR" ] || exit 9
[ -z "$(ls -A "$RAY_TMPDIR")" ] || exit 8
touch "$RAY_TMPDIR/socket"
echo started >> {tmp_path}/starts
[ "$(wc -l < {tmp_path}/starts)" -gt "$2" ] || {{ echo "$3"; exit 1; }}
"""
    )
    python.chmod(0o755)
    monkeypatch.setattr(module, "ensure_environment", lambda *_: python)
    work = job(tmp_path, steps=1)
    work.folder.mkdir()
    return GrpoRun(Driver(work, None))


def starts(folder: Path) -> int:
    return len((folder / "starts").read_text().splitlines())


def verl(run: GrpoRun, failures: int, line: str) -> None:
    # The script's arguments follow Python's `-m`.
    run._run_verl([str(failures), line], {}, lambda: None)


def test_a_ray_that_is_too_slow_is_started_twice_again(run, tmp_path, capsys):
    verl(run, 2, TIMED_OUT)
    assert starts(tmp_path) == 3
    assert capsys.readouterr().out.count("Ray is started again") == 2


def test_other_failures_are_final(run, tmp_path):
    with pytest.raises(TrainingFailedError, match="KeyError"):
        verl(run, 9, "KeyError: 'reward'")
    assert starts(tmp_path) == 1
    with pytest.raises(TrainingFailedError, match="timed out during startup"):
        verl(run, 9, TIMED_OUT)
    assert starts(tmp_path) == 4
