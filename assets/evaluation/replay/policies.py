"""What a judge would have cost and gained on recorded steps, without drawing anything.

A policy accepts or rejects every recorded attempt, and would have stopped a step at the first that
it accepts. Where it accepts none, the step stays open: what it would have drawn next was not drawn,
so its draws are a lower bound, and its image is the last recorded one. Every number is the mean
over requests of the mean over their steps, so that long sequences count once, with a bootstrap
interval over requests.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ...core.statistics import Agreement, Interval, agreement, mean_interval
from .judging import Verdicts
from .recorded import Chain, RecordedAttempt

STRICTNESS = tuple(number / 2 for number in range(21))
"""Grades, 0 to 10, at which a scorer may begin to accept."""


@dataclass(frozen=True)
class PolicyResult:
    """A policy on recorded steps; None: no attempt has what it is measured by.

    Args:
        draws: attempts of a step.
        final: overall score of the image that a step ends with.
        open_steps: share of steps of which it accepts no recorded attempt, although the step was
            allowed more.
        good_right: share of good images that it accepts.
        bad_right: share of bad images that it rejects.
    """

    name: str
    draws: Interval
    final: Interval | None
    open_steps: Interval
    good_right: Interval | None
    bad_right: Interval | None


@dataclass(frozen=True)
class Changes:
    """What a policy would have changed against the recorded verdicts, in numbers of draws.

    Args:
        saved: draws after an image that it accepts, and that is good.
        too_early: draws after an image that it accepts, although it is bad.
        wasted: good images that it rejects: each costs another draw.
        agreement: with the recorded verdicts.
    """

    recorded: int
    saved: int
    too_early: int
    wasted: int
    agreement: Agreement


def recorded_verdicts(chains: Iterable[Chain]) -> Verdicts:
    """What the critic of the time said."""
    return {each.key: each.accepted for chain in chains for each in chain}


def strict_verdicts(chains: Iterable[Chain], accept_at_least: float) -> Verdicts:
    """What a judge would have said that accepts from a stored grade on."""
    return {
        each.key: each.grade >= accept_at_least
        for chain in chains
        for each in chain
        if each.grade is not None
    }


def measure_policy(
    name: str, chains: Sequence[Chain], verdicts: Verdicts, good_from: float
) -> PolicyResult:
    """A policy's numbers; ValueError: there are no chains.

    `good_from`: the grade from which on an image is good.
    """
    ends = [(chain, stopping_point(chain, verdicts)) for chain in chains]
    draws = [(chain[0], float(_length(chain, end))) for chain, end in ends]
    finals = [(chain[0], chain[-1 if end is None else end].overall) for chain, end in ends]
    open_steps = [(chain[0], float(end is None and _may_go_on(chain))) for chain, end in ends]
    return PolicyResult(
        name,
        draws=_over_requests(draws),
        final=_known(finals),
        open_steps=_over_requests(open_steps),
        good_right=_accuracy(chains, verdicts, lambda grade: grade >= good_from, True),
        bad_right=_accuracy(chains, verdicts, lambda grade: grade < good_from, False),
    )


def compare_with_record(chains: Sequence[Chain], verdicts: Verdicts, good_from: float) -> Changes:
    """What a policy would have saved and wasted."""
    saved = too_early = wasted = 0
    for chain in chains:
        end = stopping_point(chain, verdicts)
        if end is not None:
            unneeded = len(chain) - 1 - end
            grade = chain[end].grade
            saved += unneeded if grade is not None and grade >= good_from else 0
            too_early += unneeded if grade is not None and grade < good_from else 0
        rejected = chain if end is None else chain[:end]
        wasted += sum(each.grade is not None and each.grade >= good_from for each in rejected)
    mine, theirs = (_labels(each) for each in (verdicts, recorded_verdicts(chains)))
    return Changes(sum(map(len, chains)), saved, too_early, wasted, agreement(mine, theirs))


def stopping_point(chain: Chain, verdicts: Verdicts) -> int | None:
    """Index of the first attempt that is accepted; None: none is."""
    return next((n for n, each in enumerate(chain) if verdicts.get(each.key)), None)


def _length(chain: Chain, end: int | None) -> int:
    return len(chain) if end is None else end + 1


def _may_go_on(chain: Chain) -> bool:
    return len(chain) < chain[0].t_max


def _labels(verdicts: Verdicts) -> dict[object, str | None]:
    return {key: "accepted" if accepted else "rejected" for key, accepted in verdicts.items()}


def _accuracy(
    chains: Sequence[Chain], verdicts: Verdicts, counts: Callable[[float], bool], right: bool
) -> Interval | None:
    known = [
        (each, float(verdicts[each.key] is right))
        for chain in chains
        for each in chain
        if each.grade is not None and counts(each.grade) and each.key in verdicts
    ]
    return _over_requests(known) if known else None


def _known(values: Sequence[tuple[RecordedAttempt, float | None]]) -> Interval | None:
    known = [(attempt, value) for attempt, value in values if value is not None]
    return _over_requests(known) if known else None


def _over_requests(values: Sequence[tuple[RecordedAttempt, float]]) -> Interval:
    requests: dict[str, list[float]] = defaultdict(list)
    for attempt, value in values:
        requests[attempt.prompt_id].append(value)
    return mean_interval([fmean(each) for each in requests.values()])
