"""Tokens and cost of a call, as its backend reports them from inside the call."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Usage:
    """Totals of one call, failed tries included; None: the backend reported nothing."""

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
    """Add to the ledger row of the current call; outside `collect_usage` it does nothing.

    Args:
        retries: requests that the backend itself repeated.
    """
    usage = _current.get()
    if usage is None:
        return
    usage.retries += retries
    amounts = {"input_tokens": input_tokens, "output_tokens": output_tokens, "cost_usd": cost_usd}
    for name, amount in amounts.items():
        if amount is not None:
            setattr(usage, name, (getattr(usage, name) or 0) + amount)


@contextmanager
def collect_usage(usage: Usage) -> Iterator[None]:
    """Collect in `usage` what is reported within the block."""
    token = _current.set(usage)
    try:
        yield
    finally:
        _current.reset(token)
