"""The pinned packages of environments for GPUs fit together, and nothing that they need is missing.

uv resolves them for Linux on x86_64 from the indexes' metadata; no wheel is downloaded.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from inference.environments import pins_of
from inference.environments.installers import uv_environment

pytestmark = pytest.mark.long

UV = Path(sys.executable).parent / "uv"
# A folder of wheels (pip's find-links) may hold a CPU build of a pinned version.
ENVIRONMENT = {key: value for key, value in uv_environment().items() if key != "UV_FIND_LINKS"}


def resolved(*pins: Path) -> subprocess.CompletedProcess[str]:
    target = ["--python-version", "3.11", "--python-platform", "x86_64-unknown-linux-gnu"]
    options = ["--no-config", "--no-annotate", "--no-header", "--quiet"]
    indexes = ["--index-strategy", "unsafe-best-match"]
    command = [str(UV), "pip", "compile", *options, *target, *indexes, *map(str, pins)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)


def pinned(text: str) -> set[str]:
    return set(re.findall(r"^([\w.-]+==\S+)", text, re.MULTILINE))


@pytest.fixture(scope="module", autouse=True)
def index(tmp_path_factory):
    probe = tmp_path_factory.mktemp("probe") / "requirements.txt"
    probe.write_text("six==1.17.0\n")
    if resolved(probe).returncode:
        pytest.skip("no package index can be reached")


@pytest.mark.parametrize("purpose", ["sft", "rl", "agents"])
def test_pins_of_a_gpu_environment_are_what_they_resolve_to(purpose):
    pins = pins_of(purpose, "gpu")
    done = resolved(pins)
    assert done.returncode == 0, done.stderr
    assert pinned(done.stdout) == pinned(pins.read_text())


def test_flash_attention_is_the_one_that_the_trainer_names(tmp_path):
    base, extra = pins_of("rl", "gpu"), pins_of("rl", "gpu", "flash")
    done = resolved(base, extra)
    assert done.returncode == 0, done.stderr
    assert pinned(done.stdout) == pinned(base.read_text()) | pinned(extra.read_text())
    wanted = tmp_path / "wanted.txt"
    wanted.write_text("verl[flash-attn-cu130torch211]==0.9.1\n")
    by_verl = pinned(resolved(base, wanted).stdout) - pinned(base.read_text())
    assert by_verl == pinned(extra.read_text()) - {"wheel==0.45.1"}


def test_a_missing_package_and_a_conflict_are_noticed(tmp_path):
    """So that the tests above can fail."""
    pins = tmp_path / "pins.txt"
    pins.write_text("anyio==4.16.0\n")
    assert pinned(resolved(pins).stdout) > pinned(pins.read_text())
    pins.write_text("anyio==4.16.0\nidna==1.0\n")
    assert "unsatisfiable" in resolved(pins).stderr
