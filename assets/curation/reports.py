"""What a person wants to know of a curation run, as numbers; plots of them are made elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Histogram:
    """`counts[i]` values lie from `edges[i]` to `edges[i + 1]`."""

    edges: list[float]
    counts: list[int]

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray, bins: int = 40) -> "Histogram":
        counts, edges = np.histogram(np.asarray(values, dtype=float), bins=bins)
        return cls(edges.tolist(), counts.tolist())


@dataclass(frozen=True)
class IterationScores:
    """Overall scores (0-10) of all attempts of one iteration."""

    iteration: int
    attempts: int
    mean: float
    lower_quartile: float
    median: float
    upper_quartile: float


@dataclass(frozen=True)
class StepsReport:
    """Filter and split. Steps: `kept` and `dropped` count all, the splits only train prompts."""

    steps: int
    kept: int
    dropped: dict[str, int]
    theta: float | None
    sft: int
    rl: int
    left_out: int
    variance: Histogram  # of kept train steps
    prompt_variance: Histogram  # of train prompts, which theta divides
    scores: list[IterationScores]


@dataclass(frozen=True)
class IterationBalance:
    """Verdicts of one iteration, before and after resampling."""

    iteration: int
    accepted_before: int
    rejected_before: int
    accepted_after: int
    rejected_after: int


@dataclass(frozen=True)
class CriticReport:
    """A critic set: rows, what was left out and why, verdicts by iteration."""

    rows: int
    left_out: dict[str, int]
    balance: list[IterationBalance]
    agent_prompt_version: str


@dataclass(frozen=True)
class PlannerReport:
    """The planner set: rows by source, and imported documents set aside (id and reason)."""

    rows: dict[str, int]
    quarantined: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class SequencesReport:
    """Sequences by form, and trajectories left out by reason."""

    rows: dict[str, int]
    left_out: dict[str, int]
