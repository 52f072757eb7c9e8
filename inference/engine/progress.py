"""How long work tells whoever watches it how far it is."""

from typing import Protocol


class Progress(Protocol):
    """A watcher: a terminal bar, a Dagster run's metadata, a service's stream."""

    def update(self, done: int, total: int, note: str = "") -> None:
        """`done` of `total` prompts are finished. Called often: implementations throttle."""


class NullProgress:
    """Nobody watches."""

    def update(self, done: int, total: int, note: str = "") -> None:
        """Say nothing."""
