"""The assets of rounds: their data with its safeguards, their results, and where agents fail.

`interleave improve` materializes them in turn (`dagster_project/improve.py`).
"""

import asyncio
from collections import Counter
from typing import Any, get_args

import dagster as dg

from schemas import FoundryError
from schemas.rounds import FAILURES, ROUND_ROWS, ROUNDS, FailureKind, RoundRow
from schemas.trajectories import MODEL_CALLS

from ..core.checks import blocking_checks
from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, model_call_costs, table_metadata
from ..core.node import Node
from ..core.progress import progress_of
from ..curation.sources import TrainingSources, round_partition
from ..evaluation.grading import has_exact_grader
from ..evaluation.items import pack_name, promotion_benchmark
from ..prompts.rounds import RoundPlan, record_state, recorded_rounds, states
from .data import SETS, RoundSets
from .plan_retries import retry_plans
from .results import failure_rows, finished_round, rounds_plot
from .safeguards import SafeguardResult, few_duplicates, heldout_free, not_collapsed
from .settings import RoundsSettings

_MOST_SHOWN = 12
_SAFEGUARDS = {
    "heldout_free": (
        heldout_free,
        "No held-out prompt, combination of terms or template is among its rows",
    ),
    "few_duplicates": (few_duplicates, "Few of its rows occurred before"),
    "not_collapsed": (
        not_collapsed,
        "What the agents wrote is varied, of usual length, and neither always accepted nor always "
        "rejected",
    ),
}


def _round_hashes(foundry: FoundryResource) -> list[str | None]:
    """Of the sets of the last round."""
    plans = recorded_rounds(foundry.home)
    if not plans:
        return []
    lake, number = foundry.home.lake, plans[-1].number
    return [lake.content_hash(ROUND_ROWS, round_partition(number, table)) for table in SETS]


ROUND_DATA = Node(
    name="round_data",
    group="rounds",
    description="Training sets of the round that `interleave improve` is in: what the promoted "
    "agents made of new prompts, what they got wrong, and older rows.",
    tables=(ROUND_ROWS,),
    ledger=(MODEL_CALLS,),
    deps=("prompts", "plans", "trajectories", "scores", "planner_sft", "critic_sft", "critic_rl"),
    arrows=("scores", "planner_sft", "critic_sft", "critic_rl"),
    sections=("rounds", "curation"),
    inputs=lambda foundry, _: [p.model_dump(mode="json") for p in recorded_rounds(foundry.home)],
    output_hashes=_round_hashes,
    optional=True,
)
RESULTS = Node(
    name="rounds",
    group="rounds",
    description="What each round of `interleave improve` gained and cost.",
    tables=(ROUNDS,),
    deps=("round_data", "evaluation", "promotion"),
    arrows=("round_data", "promotion"),
    sections=("rounds",),
    inputs=lambda foundry, _: sorted(states(foundry.home).items()),
    optional=True,
)
FAILURE_REPORT = Node(
    name="failures",
    group="rounds",
    description="Where agents fail, in trajectories of split train, and in evaluation on "
    "development items.",
    tables=(FAILURES,),
    deps=("prompts", "plans", "trajectories", "scores", "evaluation"),
    arrows=("scores", "evaluation"),
    sections=("curation",),
    optional=True,
)


@dg.asset(**ROUND_DATA.asset_args())
def round_data(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    plan, settings = _open_round(foundry), rounds_settings(foundry)
    retried = None
    if tries := settings.plan_retries:
        retried = asyncio.run(retry_plans(foundry, plan, tries, progress_of(context)))
    counts = RoundSets(foundry, plan, settings, retried.rows if retried else ()).build()
    rows = [{"data set": name, **by_source} for name, by_source in counts.items()]
    sources = TrainingSources(foundry.home, foundry.settings.curation, plan.number)
    metadata: dict[str, Any] = {
        "round": plan.number,
        "rows": table_metadata(rows),
        "folder": dg.MetadataValue.path(str(sources.exports)),
    }
    if retried:
        metadata["plan_retries"] = (
            f"{retried.wrong} requests had no right plan; {retried.found} of them have one after "
            f"{len(retried.calls)} more answers"
        )
        metadata |= model_call_costs(retried.calls)
    written = {ROUND_ROWS.name: sum(map(Counter.total, counts.values()))}
    return ROUND_DATA.describe(context, foundry, written, metadata)


@dg.multi_asset_check(
    name="round_data_checks",
    specs=[
        dg.AssetCheckSpec(name, asset=ROUND_DATA.name, description=about, blocking=True)
        for name, (_, about) in _SAFEGUARDS.items()
    ],
    can_subset=True,
)
def round_data_checks(context: dg.AssetCheckExecutionContext, foundry: FoundryResource) -> Any:
    found = findings(foundry)
    for key in context.selected_asset_check_keys:
        finding = found[key.name]
        yield dg.AssetCheckResult(
            passed=not finding.problems,
            asset_key=ROUND_DATA.name,
            check_name=key.name,
            description="; ".join(finding.problems) or None,
            metadata={**finding.numbers},
        )


def findings(foundry: FoundryResource) -> dict[str, SafeguardResult]:
    """What the safeguards find in the data of the round that is open."""
    home, plan = foundry.home, _open_round(foundry)
    limits = rounds_settings(foundry).safeguards
    return {name: find(home, plan, limits) for name, (find, _) in _SAFEGUARDS.items()}


@dg.asset(**RESULTS.asset_args())
def rounds(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    plans = recorded_rounds(foundry.home)
    if plans and states(foundry.home)[plans[-1].number] == "checked":
        store_round(foundry, finished_round(foundry, plans[-1]))
    rows = foundry.rows(ROUNDS)
    metadata: dict[str, Any] = {"rounds": table_metadata([_cells(row) for row in rows])}
    if rows:
        plot = rounds_plot(rows, promotion_benchmark(pack_name(foundry.settings)))
        metadata["plot"] = image_metadata(plot, "Success, cost and diversity by round")
    return RESULTS.describe(context, foundry, {ROUNDS.name: len(rows)}, metadata)


def store_round(foundry: FoundryResource, row: RoundRow) -> None:
    """Write the row of a round, which is closed then."""
    foundry.home.lake.write(ROUNDS, [row], f"{row.round:04}")
    record_state(foundry.home, row.round, "closed")


@dg.asset(**FAILURE_REPORT.asset_args())
def failures(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    good = foundry.settings.curation.critic.verdicts.accept_at_least
    rows = failure_rows(foundry.home, pack_name(foundry.settings), good)
    worst = sorted(rows, key=lambda row: -row.low)
    cells = [
        {
            "kind": row.kind,
            "name": row.name,
            "of": row.source,
            "critic": row.critic,
            "failed": f"{row.failures} of {row.count}",
            "rate": f"{row.rate:.2f} [{row.low:.2f}, {row.high:.2f}]",
        }
        for kind in get_args(FailureKind)
        for row in [each for each in worst if each.kind == kind][:_MOST_SHOWN]
    ]
    metadata = {"worst": table_metadata(cells)}
    return FAILURE_REPORT.record(context, foundry, {FAILURES: rows}, metadata)


rounds_checks = blocking_checks(RESULTS)
failures_checks = blocking_checks(FAILURE_REPORT)


def _cells(row: RoundRow) -> dict[str, object]:
    success = [m for m in row.measures if m.metric == "final_success"]
    return {
        "round": row.round,
        "decision": row.decision,
        "why": row.why,
        "rows": sum(each.rows for each in row.rows),
        "seconds": round(row.seconds),
        **{m.benchmark: f"{m.mean:.3f} [{m.low:.3f}, {m.high:.3f}]" for m in success},
    }


def rounds_settings(foundry: FoundryResource) -> RoundsSettings:
    """Section `rounds` of the profile.

    Raises:
        FoundryError: it has none, or one that does not fit its pack.
    """
    profile = foundry.settings
    if profile.rounds is None:
        raise FoundryError(
            f"profile {profile.name} has no section rounds: add `rounds: {{}}`, or use a "
            "profile that has it"
        )
    if profile.rounds.plan_retries and not has_exact_grader(profile):
        raise FoundryError(
            f"profile {profile.name}: rounds.plan_retries needs to know which plans are right, and "
            f"pack {profile.pack} has no exact grader: set it to 0"
        )
    return profile.rounds


def _open_round(foundry: FoundryResource) -> RoundPlan:
    plans = recorded_rounds(foundry.home)
    if plans and states(foundry.home)[plans[-1].number] != "closed":
        return plans[-1]
    raise FoundryError("no round has begun: `interleave improve` begins one")
