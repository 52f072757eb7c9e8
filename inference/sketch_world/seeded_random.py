"""Random numbers that depend only on a model's inputs: reproducible on any machine.

The planner samples by purpose (`KeyedRandom`), so that no choice depends on earlier ones; the
other roles sample from a seeded generator (`random_by`).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def random_by(*keys: object) -> np.random.Generator:
    """A generator seeded by a stable hash of the keys (strings, numbers, None, tuples)."""
    digest = hashlib.sha256(repr(keys).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8]))


def bernoulli(rng: np.random.Generator, rate: float) -> bool:
    return float(rng.random()) < rate


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    return options[int(rng.integers(len(options)))]


@dataclass(frozen=True)
class KeyedRandom:
    """Samples that depend only on a text and a purpose."""

    text: str

    def uniform(self, purpose: str) -> float:
        """A number in [0, 1)."""
        digest = hashlib.sha256(f"{self.text}\0{purpose}".encode()).digest()
        return int.from_bytes(digest[:7]) / 2**56

    def bernoulli(self, rate: float, purpose: str) -> bool:
        return self.uniform(purpose) < rate

    def pick(self, options: Sequence[T], purpose: str) -> T:
        return options[int(self.uniform(purpose) * len(options))]
