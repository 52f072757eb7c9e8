"""`interleave improve`: rounds in which the agents are trained on what they made themselves.

A round is a few calls of `run_lineage` with chosen assets, so that whatever is up to date is
reused: a killed round goes on where it stopped. What a round has decided is in a journal of the
home (`assets/prompts/rounds.py`).
"""

from collections.abc import Callable
from datetime import UTC, datetime

import dagster as dg

from assets.core.foundry import SHARDS, FoundryResource
from assets.core.node import NODES
from assets.evaluation.items import pack_name
from assets.evaluation.systems import newest_system, system_in_use
from assets.prompts.assets import shard_names, trajectory_shards
from assets.prompts.pack_loader import load_pack
from assets.prompts.rounds import RoundPlan, record_plan, record_state, recorded_rounds, states
from assets.rounds.assets import findings, rounds_settings, store_round
from assets.rounds.results import blocked_round, failure_rows, quotas_of
from schemas import FoundryError
from schemas.rounds import ROUNDS, RoundRow
from schemas.training import CRITIC, PLANNER, SFT_CRITIC
from training.registry import CheckpointRegistry

from .run import run_lineage

_DATA = ("prompts", "plans", "trajectories", "scores", "round_data")
_AGENTS = (PLANNER, SFT_CRITIC, CRITIC, "rubrics", "evaluation", "promotion")
_RESULTS = ("failures", "rounds")
Announce = Callable[[str], object]


def improve(
    foundry: FoundryResource,
    instance: dg.DagsterInstance,
    rounds: int,
    announce: Announce = str,
    force: bool = False,
) -> list[RoundRow]:
    """Go on until `rounds` rounds of this home are finished, or one says that it is not worth it.

    Args:
        force: begin one more round though the last one did not help.

    Returns:
        All finished rounds, oldest first.

    Raises:
        FoundryError: the profile has no section `rounds`, or no planner and critic are promoted.
    """
    rounds_settings(foundry)  # before anything is done: they may be missing
    while True:
        finished = finished_rounds(foundry)
        stopped = bool(finished) and not finished[-1].continues and not force
        unfinished = len(recorded_rounds(foundry.home)) > len(finished)
        if not unfinished and (stopped or len(finished) >= rounds):
            break
        force = force and unfinished  # one more, not all of them
        plan = recorded_rounds(foundry.home)[-1] if unfinished else _begin(foundry, instance)
        row = _run_round(foundry, instance, plan, announce)
        announce(f"Round {row.round}: {row.decision}, {row.why}")
    if finished and not finished[-1].continues:
        announce(f"Stopped after round {finished[-1].round}: {finished[-1].why}")
    return finished


def finished_rounds(foundry: FoundryResource) -> list[RoundRow]:
    """Oldest first."""
    closed = {number for number, state in states(foundry.home).items() if state == "closed"}
    rows = [row for row in foundry.rows(ROUNDS) if row.round in closed]
    return sorted(rows, key=lambda row: row.round)


def _begin(foundry: FoundryResource, instance: dg.DagsterInstance) -> RoundPlan:
    """Record a new round: its shards, quotas, and the agents that are promoted now."""
    settings, home = foundry.settings, foundry.home
    in_use = system_in_use(home)
    if in_use is None:
        raise FoundryError(
            f"no planner and critic are promoted in {home.root} yet: `interleave run` trains, "
            "evaluates and promotes them"
        )
    pack = load_pack(settings.pack).name
    first = max(trajectory_shards(foundry, instance), settings.banks.get(settings.pack, 0))
    count = rounds_settings(foundry).shards
    plan = RoundPlan(
        number=len(recorded_rounds(home)) + 1,
        pack=pack,
        first_shard=first,
        shards=tuple(shard_names(pack, first + count)[first:]),
        planner=in_use.planner,
        critic=in_use.critic,
        began_at=datetime.now(UTC),
    )
    if (wanted := settings.prompts.quotas_by_failure) is not None:
        good = settings.curation.critic.verdicts.accept_at_least
        rows = failure_rows(home, pack_name(settings), good)
        plan = plan.model_copy(update={"quotas": quotas_of(rows, plan.agents, wanted)})
    record_plan(home, plan)
    return plan


def _run_round(
    foundry: FoundryResource, instance: dg.DagsterInstance, plan: RoundPlan, announce: Announce
) -> RoundRow:
    # These alone: the bank may have prompts of more shards before them than have trajectories.
    instance.add_dynamic_partitions(str(SHARDS.name), list(plan.shards))

    def run(names: tuple[str, ...]) -> None:
        chosen = [name for name in names if NODES[name].is_enabled(foundry.settings)]
        run_lineage(foundry, instance, shards=0, select=chosen, announce=announce)

    if states(foundry.home)[plan.number] == "open":
        announce(f"Round {plan.number}: {', '.join(plan.shards)} by {plan.planner}, {plan.critic}")
        try:
            run(_DATA)
        except FoundryError:
            if not (problems := _problems(foundry)):
                raise
            store_round(foundry, blocked_round(foundry, plan, problems))
            run(_RESULTS)
            return finished_rounds(foundry)[-1]
        record_state(foundry.home, plan.number, "checked")
    try:
        run(_AGENTS)
    except FoundryError:
        if not _is_rejected(foundry):
            raise
    run(_RESULTS)
    return finished_rounds(foundry)[-1]


def _problems(foundry: FoundryResource) -> str:
    """What the safeguards say of the data of the open round; empty: nothing, or there is none."""
    if None in NODES["round_data"].contents(foundry, [None])[None]:
        return ""
    return "; ".join(problem for each in findings(foundry).values() for problem in each.problems)


def _is_rejected(foundry: FoundryResource) -> bool:
    """Whether promotion found a new version to be worse, which fails its blocking check."""
    registry = CheckpointRegistry(foundry.home)
    return any(
        registry.is_complete(name, version) and registry.find(name, version).status == "rejected"
        for name, version in newest_system(foundry).versions.items()
    )
