"""Progress of assets: to a terminal bar where one is registered, else to Dagster's log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import dagster as dg

from inference.calls.progress import NullProgress, Progress

ProgressFactory = Callable[[str], Progress]
_LOG_SECONDS = 10.0
_factory: ContextVar[ProgressFactory | None] = ContextVar("progress_factory", default=None)


class LogProgress:
    """Logs `done/total` at the end and at most every ten seconds before."""

    def __init__(self, log: Callable[[str], None], label: str) -> None:
        self._log, self._label = log, label
        self._last = time.monotonic()

    def update(self, done: int, total: int, note: str = "") -> None:
        if done < total and time.monotonic() - self._last < _LOG_SECONDS:
            return
        self._last = time.monotonic()
        self._log(f"{self._label}: {done}/{total}{f' ({note})' if note else ''}")


@contextmanager
def reporting_to(factory: ProgressFactory) -> Iterator[None]:
    """Send the progress of assets materialized in this process to `factory(label)`."""
    token = _factory.set(factory)
    try:
        yield
    finally:
        _factory.reset(token)


def progress_factory() -> ProgressFactory:
    """The factory of `reporting_to`; without one, progress is discarded."""
    return _factory.get() or (lambda _label: NullProgress())


def progress_of(context: dg.AssetExecutionContext) -> Progress:
    """The progress listener of an asset's run, labelled with asset and partition."""
    label = context.asset_key.to_user_string()
    if context.has_partition_key:
        label += f" {context.partition_key}"
    factory = _factory.get()
    return factory(label) if factory else LogProgress(context.log.info, label)
