"""What a judge would have cost and gained on recorded steps, without drawing anything.

A policy accepts or rejects every recorded attempt, and would have stopped a step at the first that
it accepts. Where it accepts none, the step stays open: what it would have drawn next was not drawn,
so its draws are a lower bound, and its image is the last recorded one. Every number is the mean
over requests of the mean over their steps, so that long sequences count once, with a bootstrap
interval over requests.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean

from inference.calls.ask import ModelCalls
from inference.calls.progress import Progress
from inference.roles import Roles, UnusableAnswerError, qualified_name
from inference.settings import Limits
from schemas import FoundryError
from schemas.trajectories import MODEL_CALLS
from warehouse import Home

from ..core.duckdb_session import shard_in
from ..core.plotting import ACCENT, BAD, GOOD, INK, OTHER, PALE, figure_png, new_figure
from ..core.profile import Profile
from ..core.progress import progress_factory
from ..core.statistics import Agreement, Interval, agreement, mean_interval
from .items import AttemptKey, StoredAttempt, stored_attempts

ASSET = "replay"
PROFILE_CRITIC = "profile"
_CHOSEN = """
trajectory_id IN (
    SELECT trajectory_id FROM trajectories WHERE {shards} ORDER BY md5(trajectory_id) {limit}
)
"""
STRICTNESS = tuple(number / 2 for number in range(21))
"""Grades, 0 to 10, at which a scorer may begin to accept."""
Chain = tuple[StoredAttempt, ...]
"""The attempts of one step, in order."""
Verdicts = dict[AttemptKey, bool]
"""Attempt -> whether it is accepted; those without a readable answer are missing."""


def recorded_chains(
    home: Home, shards: Sequence[str] = (), trajectories: int | None = None
) -> list[Chain]:
    """The recorded steps of some shards (none named: of all).

    Args:
        trajectories: a sample of so many, chosen by hash; None: all.
    """
    chosen = _CHOSEN.format(
        shards=shard_in(list(shards)) if shards else "true",
        limit="" if trajectories is None else f"LIMIT {trajectories}",
    )
    attempts = stored_attempts(home, chosen)
    steps = groupby(attempts, key=lambda each: (each.trajectory_id, each.step_number))
    return [tuple(chain) for _, chain in steps]


@dataclass(frozen=True)
class ReplayReport:
    """Judges on the same recorded steps; `changes`: of those that were asked."""

    steps: int
    requests: int
    results: list["PolicyResult"]
    changes: dict[str, "Changes"]
    plot: bytes  # PNG


def replay_attempts(
    profile: Profile,
    home: Home,
    critic: str | None = None,
    scorer: bool = False,
    accept_at_least: float | None = None,
    shards: Sequence[str] = (),
    trajectories: int | None = None,
) -> ReplayReport:
    """Ask the judges about recorded attempts; finished calls are journaled, and never repeated.

    Args:
        critic: a reference, or `PROFILE_CRITIC`: the profile's own; None: no critic judges again.
        scorer: whether the profile's scorer judges, by its grades.
        accept_at_least: grade from which on an image is good, and a scorer accepts; None: the
            profile's.
        shards, trajectories: see `recorded_chains`.

    Raises:
        FoundryError: there are no attempts, a judge is unavailable, or a call failed.
    """
    chains = recorded_chains(home, shards, trajectories)
    if not chains:
        place = ", ".join(shards) or home.root
        raise FoundryError(f"no recorded attempts in {place}: `interleave run` makes them")
    good_from = accept_at_least
    if good_from is None:
        good_from = profile.curation.critic.verdicts.accept_at_least
    judges = _judges(profile, home, critic, good_from if scorer else None)
    verdicts = {name: judge.verdicts(name, chains) for name, judge in judges.items()}
    policies = {"recorded verdicts": recorded_verdicts(chains), **verdicts}
    results = [measure_policy(name, chains, each, good_from) for name, each in policies.items()]
    curve = [
        measure_policy(f"from {grade:g}", chains, strict_verdicts(chains, grade), good_from)
        for grade in STRICTNESS
    ]
    return ReplayReport(
        steps=len(chains),
        requests=len({chain[0].prompt_id for chain in chains}),
        results=results,
        changes={
            name: compare_with_record(chains, each, good_from) for name, each in verdicts.items()
        },
        plot=strictness_plot(curve, results),
    )


def _judges(
    profile: Profile, home: Home, critic: str | None, accept_at_least: float | None
) -> dict[str, "_AttemptJudge"]:
    """Those that are asked, by name; FoundryError: one is unavailable."""
    found: dict[str, _AttemptJudge] = {}
    if critic is None and accept_at_least is None:
        return found
    roles, limits = profile.build(home), profile.limits
    if critic:
        own = critic == PROFILE_CRITIC
        judge = roles.critic if own else profile.agent("critic", critic, home)
        named = replace(roles, critic=judge)
        found[f"critic {qualified_name(judge)}"] = _AttemptJudge(home, named, limits)
    if accept_at_least is not None:
        name = f"scorer {qualified_name(roles.scorer)} from {accept_at_least:g}"
        found[name] = _AttemptJudge(home, roles, limits, accept_at_least)
    return found


@dataclass(frozen=True)
class _AttemptJudge:
    """Asks the critic of `roles`, or the scorer, which accepts from a grade on."""

    home: Home
    roles: Roles
    limits: Limits
    accept_at_least: float | None = None  # None: the critic is asked

    def verdicts(self, name: str, chains: Sequence[Chain]) -> Verdicts:
        """Verdicts on all attempts, and their calls in the ledger.

        Raises:
            FoundryError: a call failed after all retries.
        """
        progress = progress_factory()(f"{name}: {sum(map(len, chains))} attempts")
        shards: dict[str, list[StoredAttempt]] = defaultdict(list)
        for chain in chains:
            shards[chain[0].shard] += chain
        return asyncio.run(self._judge(shards, progress))

    async def _judge(
        self, shards: Mapping[str, Sequence[StoredAttempt]], progress: Progress
    ) -> Verdicts:
        found: Verdicts = {}
        for shard, attempts in shards.items():
            with ModelCalls(self.home, ASSET, shard, self.roles, self.limits) as calls:

                async def judge(attempt: StoredAttempt, calls: ModelCalls = calls) -> None:
                    with suppress(UnusableAnswerError):
                        found[attempt.key] = await self._accepts(calls, attempt)

                await calls.map(judge, attempts, self.limits.in_flight, progress)
                self.home.lake.write(MODEL_CALLS, calls.ledger(), f"{ASSET}-{shard}")
        return found

    async def _accepts(self, calls: ModelCalls, attempt: StoredAttempt) -> bool:
        source = attempt.source_image
        before = await calls.image(source) if source else None
        after = await calls.image(attempt.image)
        if self.accept_at_least is None:
            asked = (attempt.site, before, after, attempt.goal, attempt.rewritten)
            return (await calls.judge(*asked)).answer.accepted
        score = (await calls.score(attempt.site, before, after, attempt.goal)).score
        return min(score.overall, score.quality) >= self.accept_at_least


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
    agreement: Agreement | None


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
    steps = [(chain, stopping_point(chain, verdicts)) for chain in chains]
    ends = [(chain, len(chain) - 1 if end is None else end) for chain, end in steps]
    graded = [
        (each, verdicts[each.key], each.grade >= good_from)
        for chain in chains
        for each in chain
        if each.grade is not None and each.key in verdicts
    ]
    draws = _over_requests((chain[0], end + 1) for chain, end in ends)
    open_steps = _over_requests(
        (chain[0], end is None and len(chain) < chain[0].t_max) for chain, end in steps
    )
    assert draws and open_steps, "there are chains"
    return PolicyResult(
        name,
        draws,
        final=_over_requests((chain[0], chain[end].overall) for chain, end in ends),
        open_steps=open_steps,
        good_right=_over_requests((each, said) for each, said, good in graded if good),
        bad_right=_over_requests((each, not said) for each, said, good in graded if not good),
    )


def compare_with_record(chains: Sequence[Chain], verdicts: Verdicts, good_from: float) -> Changes:
    """What a policy would have saved and wasted."""
    saved = too_early = wasted = 0
    for chain in chains:
        end = stopping_point(chain, verdicts)
        rejected = chain if end is None else chain[:end]
        wasted += sum(each.grade is not None and each.grade >= good_from for each in rejected)
        grade = None if end is None else chain[end].grade
        if end is not None and grade is not None:
            unneeded, good = len(chain) - 1 - end, grade >= good_from
            saved, too_early = saved + unneeded * good, too_early + unneeded * (not good)
    mine = {key: str(accepts) for key, accepts in verdicts.items()}
    theirs = {key: str(accepts) for key, accepts in recorded_verdicts(chains).items()}
    return Changes(sum(map(len, chains)), saved, too_early, wasted, agreement(mine, theirs))


def stopping_point(chain: Chain, verdicts: Verdicts) -> int | None:
    """Index of the first attempt that is accepted; None: none is."""
    return next((n for n, each in enumerate(chain) if verdicts.get(each.key)), None)


def _over_requests(values: Iterable[tuple[StoredAttempt, float | None]]) -> Interval | None:
    """Of the values that are known; None: there are none."""
    requests: dict[str, list[float]] = defaultdict(list)
    for attempt, value in values:
        if value is not None:
            requests[attempt.prompt_id].append(value)
    return mean_interval([fmean(each) for each in requests.values()]) if requests else None


_COLOURS = (INK, BAD, GOOD, ACCENT)
_LABELLED = 4  # every so many strictnesses have their number


def strictness_plot(curve: Sequence[PolicyResult], points: Sequence[PolicyResult]) -> bytes:
    """PNG: `curve` has a result for each of `STRICTNESS`, `points` are judges beside it.

    Left: what they cost and gain. Right: the share of steps that they leave open, whose cost is a
    lower bound.
    """
    with new_figure(4.2, "What another strictness would have cost", columns=2) as (figure, axes):
        gain, left_open = axes
        known = [(each.draws.mean, each.final.mean) for each in curve if each.final]
        gain.plot(*zip(*known, strict=True), "-o", color=OTHER, markersize=3, label="by grade")
        for number, (x, y) in list(enumerate(known))[::_LABELLED]:
            gain.annotate(f"{STRICTNESS[number]:g}", (x, y), (4, -10), textcoords="offset points")
        for colour, point in zip(_COLOURS, points, strict=False):
            if point.final:
                mean, low, high = point.final.mean, point.final.low, point.final.high
                at = point.draws.mean, mean, [[mean - low], [high - mean]]
                gain.errorbar(*at, fmt="D", color=colour, label=point.name)
        gain.set_xlabel("draws per step")
        gain.set_ylabel("score of the final image")
        gain.set_title("By strictness of a scorer", fontsize=10)
        figure.legend(loc="outside lower left", fontsize=8)
        left_open.plot(STRICTNESS, [each.open_steps.mean for each in curve], color=PALE)
        left_open.set_xlabel("accepted from this grade on")
        left_open.set_title("Steps that would need more draws", fontsize=10)
        left_open.set_ylim(-0.02, 1.02)
        return figure_png(figure)
