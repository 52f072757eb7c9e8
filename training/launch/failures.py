"""Why a training ended: one line for people, and the log that says more."""

import re
import signal
from pathlib import Path

from schemas import FoundryError

_TAIL_BYTES = 200_000
_LONGEST = 300
_REMEDY = "use a smaller batch, shorter answers or smaller pictures"
_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemoryError|can't allocate memory|std::bad_alloc")
# The last line of a Python traceback: an exception's dotted name, then what it says.
_RAISED = re.compile(r"^(?:\([^)]*\) *)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*)$", re.M)


class TrainingFailed(FoundryError):  # noqa: N818 - it names an outcome
    """A trainer did not finish; says why in one line and where its log is."""

    def __init__(self, reason: str, log: Path | None = None) -> None:
        self.reason, self.log = reason, log
        super().__init__(f"{reason} (log: {log})" if log else reason)


def why_it_ended(code: int, log: Path, remedy: str = _REMEDY) -> str:
    """One line about a process that ended with a code, from the code and the end of its log.

    Args:
        remedy: what to do where memory was short.
    """
    tail = _tail(log)
    if _OUT_OF_MEMORY.search(tail):
        return f"it ran out of memory: {remedy}"
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return f"it was killed, most likely by the system for lack of memory: {remedy}"
    raised = _RAISED.findall(tail)
    if raised:
        return f"it ended with {_short(raised[-1])}"
    return f"it ended with {_code(code)}"


def _code(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _short(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def _tail(log: Path) -> str:
    """The end of a log, which may be long or not there."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
