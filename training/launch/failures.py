"""Why a training ended: one line for people, and the log that says more."""

import re
import signal
from pathlib import Path

from schemas import FoundryError

_TAIL_BYTES = 200_000
_MAX_REASON = 300  # characters
_REMEDY = "use a smaller batch, shorter answers or smaller pictures"
_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemoryError|can't allocate memory|std::bad_alloc")
# The last line of a Python traceback: an exception's dotted name, then what it says.
_EXCEPTION = re.compile(r"^(?:\([^)]*\) *)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*)$", re.M)


class TrainingFailedError(FoundryError):
    """A trainer did not finish; gives the reason in one line and the path of its log."""

    def __init__(self, reason: str, log: Path | None = None) -> None:
        self.reason, self.log = reason, log
        super().__init__(f"{reason} (log: {log})" if log else reason)


def exit_reason(code: int, log: Path, remedy: str = _REMEDY) -> str:
    """One line about a process that ended with a code, from the code and the end of its log.

    Args:
        remedy: what to do where memory was short.
    """
    tail = _tail(log)
    if _OUT_OF_MEMORY.search(tail):
        return f"it ran out of memory: {remedy}"
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return f"it was killed, most likely by the system for lack of memory: {remedy}"
    if exceptions := _EXCEPTION.findall(tail):
        line = " ".join(exceptions[-1].split())
        return f"it ended with {line[:_MAX_REASON]}{'...' if len(line) > _MAX_REASON else ''}"
    end = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"it ended with {end}"


def _tail(log: Path) -> str:
    """The end of a log; empty where there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
