"""How work reports its progress."""

from typing import Protocol


class Progress(Protocol):
    """A terminal bar, a Dagster run's metadata, a service's stream."""

    def update(self, done: int, total: int, note: str = "") -> None:
        """`done` of `total` prompts are finished. Called often: implementations throttle."""


class NullProgress:
    """Reports nothing."""

    def update(self, done: int, total: int, note: str = "") -> None:
        """Do nothing."""
