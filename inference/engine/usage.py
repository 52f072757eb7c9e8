"""What a call cost, as its backend reports it from inside the call."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

_Number = TypeVar("_Number", int, float)


@dataclass
class Usage:
    """Running totals of one call, failed tries included; None: the backend never said."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    retries: int = 0


_current: ContextVar[Usage | None] = ContextVar("usage", default=None)


def report_usage(
    *,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    cost_usd: float | None = None,
    retries: int = 0,
) -> None:
    """Called by a backend during a call: add to the call's row in the ledger.

    Args:
        retries: requests that the backend made again by itself.

    Outside a call (a backend used by hand) it does nothing.
    """
    usage = _current.get()
    if usage is None:
        return
    usage.input_tokens = _plus(usage.input_tokens, input_tokens)
    usage.output_tokens = _plus(usage.output_tokens, output_tokens)
    usage.cost_usd = _plus(usage.cost_usd, cost_usd)
    usage.retries += retries


@contextmanager
def metered(usage: Usage) -> Iterator[None]:
    """Collect in `usage` what is reported within the block."""
    token = _current.set(usage)
    try:
        yield
    finally:
        _current.reset(token)


def _plus(total: _Number | None, more: _Number | None) -> _Number | None:
    if more is None:
        return total
    return more if total is None else total + more
