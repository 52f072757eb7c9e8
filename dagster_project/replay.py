"""`interleave replay`: builds the judges that are named, and compares them on recorded steps."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from assets.core.profile import Profile
from assets.core.progress import progress_factory
from assets.evaluation.replay import (
    STRICTNESS,
    AttemptJudge,
    Chain,
    Changes,
    PolicyResult,
    Verdicts,
    compare_with_record,
    measure_policy,
    recorded_chains,
    recorded_verdicts,
    strict_verdicts,
    strictness_plot,
)
from inference.roles import Roles, qualified_name
from schemas import FoundryError
from warehouse import Home

PROFILE_CRITIC = "profile"
_RECORDED = "recorded verdicts"


@dataclass(frozen=True)
class Judges:
    """Who judges again. `critic`: a reference, or `profile`; None: nobody in its place.

    `accept_at_least`: grade from which on an image is good, and a scorer accepts; None: the
    profile's.
    """

    profile: Profile
    home: Home
    critic: str | None = None
    scorer: bool = False
    accept_at_least: float | None = None

    @property
    def good_from(self) -> float:
        if self.accept_at_least is not None:
            return self.accept_at_least
        return self.profile.curation.critic.verdicts.accept_at_least

    def by_name(self) -> dict[str, AttemptJudge]:
        """Those that are asked, by name; FoundryError: one is unavailable."""
        if not self.critic and not self.scorer:
            return {}
        roles, limits = self.profile.build(self.home), self.profile.limits
        found = {}
        if self.critic:
            with_critic = self._with_critic(roles, self.critic)
            name = f"critic {qualified_name(with_critic.critic)}"
            found[name] = AttemptJudge(self.home, with_critic, limits)
        if self.scorer:
            name = f"scorer {qualified_name(roles.scorer)} from {self.good_from:g}"
            found[name] = AttemptJudge(self.home, roles, limits, self.good_from)
        return found

    def _with_critic(self, roles: Roles, reference: str) -> Roles:
        if reference == PROFILE_CRITIC:
            return roles
        return replace(roles, critic=self.profile.agent("critic", reference, self.home))


@dataclass(frozen=True)
class ReplayReport:
    """Judges on the same recorded steps; `changes`: of those that were asked."""

    steps: int
    requests: int
    results: list[PolicyResult]
    changes: dict[str, Changes]
    plot: bytes  # PNG


def replay_attempts(
    judges: Judges, shards: Sequence[str] = (), trajectories: int | None = None
) -> ReplayReport:
    """Ask the judges about recorded attempts; finished calls are journaled.

    Raises:
        FoundryError: there are no attempts, a judge is unavailable, or a call failed.
    """
    chains = recorded_chains(judges.home, shards, trajectories)
    if not chains:
        place = ", ".join(shards) or judges.home.root
        raise FoundryError(f"no recorded attempts in {place}: `interleave run` makes them")
    verdicts = {name: _ask(name, judge, chains) for name, judge in judges.by_name().items()}
    good_from = judges.good_from
    results = [
        measure_policy(name, chains, each, good_from)
        for name, each in {_RECORDED: recorded_verdicts(chains), **verdicts}.items()
    ]
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


def _ask(name: str, judge: AttemptJudge, chains: Sequence[Chain]) -> Verdicts:
    progress = progress_factory()(f"{name}: {sum(map(len, chains))} attempts")
    return asyncio.run(judge.verdicts(chains, progress))
