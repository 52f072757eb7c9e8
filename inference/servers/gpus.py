"""Shares of this machine's GPUs, which servers and trainings of all homes claim.

The memory of a GPU is twenty lock files, each a twentieth: the kernel frees them with the process
that holds them. While a claimant waits it also holds the GPU's `turn`, by which an idle server
knows that it is to stop. Claims go through GPUs in ascending order, so that none wait in a circle.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from math import ceil
from pathlib import Path
from tempfile import gettempdir
from typing import TypeVar

from warehouse.file_lock import HeldLock, is_locked, try_lock

Taken = TypeVar("Taken")

_PARTS = 20
_TOLERANCE = 1e-6
_POLL_SECONDS = 0.5
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(gpus: Sequence[int]) -> str:
    """The value of CUDA_VISIBLE_DEVICES for GPUs, counted among those that it names already."""
    visible = [name for name in os.environ.get(_VISIBLE, "").split(",") if name]
    return ",".join(visible[gpu] if gpu < len(visible) else str(gpu) for gpu in gpus)


@contextmanager
def claimed_gpus(
    gpus: Sequence[int],
    share: float,
    holder: str,
    waiting: Callable[[str], object] = lambda note: None,
) -> Iterator[None]:
    """Hold a share (0 to 1) of the memory of GPUs; waits until it is free.

    `holder`: who claims it, for those who wait. `waiting`: called about twice a second with who
    holds it; what it raises ends the wait.
    """
    count = ceil(share * _PARTS - _TOLERANCE)
    with ExitStack() as stack:
        for device in sorted(filter(None, visible_devices(gpus).split(","))):
            turn = _wait(partial(try_lock, _file(device, "turn")), device, waiting)
            try:
                parts = _wait(partial(_free_parts, device, count), device, waiting)
            finally:
                turn.release()
            for part in parts:
                stack.callback(part.release)
                part.write(f"{holder}, process {os.getpid()}")
        yield


def is_wanted(gpus: Sequence[int]) -> bool:
    """Whether somebody waits for one of the GPUs."""
    devices = filter(None, visible_devices(gpus).split(","))
    return any(is_locked(_file(device, "turn")) for device in devices)


def _wait(take: Callable[[], Taken | None], device: str, waiting: Callable[[str], object]) -> Taken:
    while (taken := take()) is None:
        waiting(f"GPU {device} is used by {' and '.join(_holders(device)) or 'another process'}")
        time.sleep(_POLL_SECONDS)
    return taken


def _free_parts(device: str, count: int) -> list[HeldLock] | None:
    """So many parts of a GPU; None, and none is held, where fewer are free."""
    parts: list[HeldLock] = []
    for number in range(_PARTS):
        if len(parts) < count and (part := try_lock(_file(device, str(number)))):
            parts.append(part)
    if len(parts) == count:
        return parts
    for part in parts:
        part.release()
    return None


def _holders(device: str) -> list[str]:
    files = (_file(device, str(number)) for number in range(_PARTS))
    return sorted({file.read_text("utf-8") for file in files if is_locked(file)} - {""})


def _file(device: str, name: str) -> Path:
    folder = Path(gettempdir()) / f"interleave-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{device.replace('/', '-')}.{name}"
