"""Chance that depends on nothing but what a model is given: the same everywhere and always.

The planner draws by purpose (`KeyedRandom`), so that no choice depends on the choices before it;
the others draw from a seeded generator (`random_by`), one after the other.
"""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def random_by(*keys: object) -> np.random.Generator:
    """A generator seeded by a stable hash of the keys (strings, numbers, None, tuples)."""
    digest = hashlib.sha256(repr(keys).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8]))


def happens(rng: np.random.Generator, rate: float) -> bool:
    """True with a probability of `rate`."""
    return float(rng.random()) < rate


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of the options, evenly."""
    return options[int(rng.integers(len(options)))]


class KeyedRandom:
    """Draws that are the same for the same text and purpose."""

    def __init__(self, text: str) -> None:
        self._text = text

    def share(self, purpose: str) -> float:
        """A number in [0, 1)."""
        digest = hashlib.sha256(f"{self._text}\0{purpose}".encode()).digest()
        return int.from_bytes(digest[:7]) / 2**56

    def happens(self, rate: float, purpose: str) -> bool:
        """True with a probability of `rate`."""
        return self.share(purpose) < rate

    def pick(self, options: Sequence[T], purpose: str) -> T:
        """One of the options, evenly."""
        return options[int(self.share(purpose) * len(options))]
