"""Training sets made from scores: steps, critic and planner sets, sequences, and exports."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa

from inference.agent_prompts.templates import version_of
from inference.generation.files import file_version
from schemas.curation import (
    CRITIC_DPO,
    CRITIC_RL,
    CRITIC_SFT,
    IMPORTS,
    PLANNER_RL,
    PLANNER_SFT,
    SEQUENCES,
    STEPS,
)
from warehouse.lake import ALL

from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, table_metadata
from ..core.node import Node
from ..prompts.pack_loader import load_pack
from . import figures
from .critic_sets import CriticSet, build_critic_rl, build_critic_sft
from .exports.folder import read_card
from .exports.publisher import FORMAT_VERSION, export_all
from .planner_sets import build_planner_rl, build_planner_sft
from .preference_pairs import build_critic_dpo
from .sequences import build_sequences
from .settings import BalanceSettings
from .steps import StepsReport, build_steps
from .targets import own_target, progress_metadata, reduce_to_target, targets_of

_SHOWN = 12
_TRAJECTORY_INPUTS = ("prompts", "plans", "trajectories", "reviews")
_CRITIC_INPUTS = ("plans", "trajectories", "scores", "steps", "reviews")


def _agent_prompts(foundry: FoundryResource) -> list[str]:
    """Versions of the agent prompts: a bare name in the settings means the newest one."""
    critic, planner = foundry.settings.curation.critic, foundry.settings.curation.planner
    names = (critic.agent_prompt, planner.text_prompt, planner.interleaved_prompt)
    return [version_of(name) for name in names]


def _rows_left(name: str) -> Callable[[FoundryResource, dg.DagsterInstance], int | None]:
    """The rows that a target leaves to a set."""
    return lambda foundry, _instance: own_target(foundry, name)


def _export_inputs(foundry: FoundryResource, _instance: dg.DagsterInstance) -> dict[str, str]:
    """Fingerprints of the export folders, so that a deleted one is written again."""
    formats, exports = foundry.settings.curation.export_formats, foundry.home.exports
    return {name: read_card(exports / name).get("fingerprint", "") for name in formats}


def _set_node(**options: Any) -> Node:
    shared: dict[str, Any] = {"group": "data_sets", "sections": ("curation",), "automatic": True}
    return Node(**shared | {"config": _agent_prompts} | options)


STEP_SET = _set_node(
    name="steps",
    description="Chains of attempts, filtered by named rules, truncated at their best attempt and "
    "split into SFT and RL by the variance of their scores (paper, section 3.2).",
    tables=(STEPS,),
    deps=("prompts", "trajectories", "scores", "reviews"),
    arrows=("scores", "reviews"),
    config=None,
    kinds=frozenset({"duckdb", "parquet"}),
)
CRITIC_SFT_SET = _set_node(
    name="critic_sft",
    description="What the critic is fine-tuned on; verdicts are balanced per iteration.",
    tables=(CRITIC_SFT,),
    deps=_CRITIC_INPUTS,
    arrows=("steps",),
    inputs=_rows_left(CRITIC_SFT.name),
)
CRITIC_RL_SET = _set_node(
    name="critic_rl",
    description="What GRPO of the critic starts from; verdicts are balanced per iteration.",
    tables=(CRITIC_RL,),
    deps=_CRITIC_INPUTS,
    arrows=("steps",),
    inputs=_rows_left(CRITIC_RL.name),
)
CRITIC_DPO_SET = _set_node(
    name="critic_dpo",
    group="reviews",
    description="Pairs for DPO. Made where a profile has `curation.reviews` with `use`, or "
    "`curation.preferences` with `scores`.",
    tables=(CRITIC_DPO,),
    deps=("prompts", "plans", "trajectories", "scores", "reviews"),
    arrows=("scores", "reviews"),
    sections=("curation", "curation.reviews"),
    may_be_empty=True,
    format_version=2,
)
PLANNER_SFT_SET = _set_node(
    name="planner_sft",
    description="Plans from requests, plans continued from a cut, imported interleaved documents.",
    tables=(PLANNER_SFT,),
    deps=_TRAJECTORY_INPUTS,
    arrows=("trajectories", "reviews"),
    inputs=_rows_left(PLANNER_SFT.name),
    format_version=3,
)
PLANNER_RL_SET = _set_node(
    name="planner_rl",
    description="Requests that no teacher has planned. Made where a profile has "
    "`training.planner_rl`.",
    tables=(PLANNER_RL,),
    deps=("prompts", "plans"),
    arrows=("plans",),
    sections=("pack", "curation", "training.planner_rl"),
)
SEQUENCE_SET = _set_node(
    name="sequences",
    description="Complete trajectories, in an easy and a reflection form.",
    tables=(SEQUENCES,),
    deps=_TRAJECTORY_INPUTS,
    arrows=("trajectories", "reviews"),
)


def _import_hashes(foundry: FoundryResource) -> list[str | None]:
    """Hashes of the imports, where the profile uses any."""
    if not IMPORT_SET.in_profile(foundry.settings):
        return []
    lake = foundry.home.lake
    return list(lake.content_hashes(IMPORTS).values())


def _import_files(foundry: FoundryResource) -> dict[str, str | None]:
    return {name: file_version(each.file) for name, each in foundry.settings.imports.items()}


IMPORT_SET = Node(
    name="imports",
    group="imports",
    description="Training rows of other people, which `interleave import` stores with origin and "
    "licence, or the profile's `imports` name; used where a profile has `curation.exports.mix`.",
    tables=(IMPORTS,),
    sections=("curation.exports.mix", "imports"),
    inputs=lambda foundry, _instance: [_import_hashes(foundry), _import_files(foundry)],
    output_hashes=_import_hashes,
    may_be_empty=True,
)
EXPORT_SET = _set_node(
    name="exports",
    description="The sets in the formats of LLaMA-Factory, verl, the reference (JSONL) and Hugging "
    "Face datasets, each with a card.",
    deps=(
        *("steps", "critic_sft", "critic_rl", "critic_dpo"),
        *("planner_sft", "planner_rl", "sequences", "imports"),
    ),
    arrows=(
        *("critic_sft", "critic_rl", "critic_dpo"),
        *("planner_sft", "planner_rl", "sequences", "imports"),
    ),
    optional_deps=("imports",),
    kinds=frozenset({"python", "huggingface"}),
    inputs=_export_inputs,
    format_version=FORMAT_VERSION,
)


@dg.asset(**STEP_SET.asset_args())
def steps(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    rows, report = build_steps(foundry.home, foundry.settings.curation)
    return STEP_SET.record(context, foundry, {STEPS: rows}, _steps_metadata(report))


@dg.asset(**CRITIC_SFT_SET.asset_args())
def critic_sft(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    made = build_critic_sft(foundry.home, foundry.settings.curation)
    balance = foundry.settings.curation.critic.balance_sft
    return _record_critic_set(CRITIC_SFT_SET, context, foundry, made, balance)


@dg.asset(**CRITIC_RL_SET.asset_args())
def critic_rl(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    made = build_critic_rl(foundry.home, foundry.settings.curation)
    balance = foundry.settings.curation.critic.balance_rl
    return _record_critic_set(CRITIC_RL_SET, context, foundry, made, balance)


@dg.asset(**CRITIC_DPO_SET.asset_args())
def critic_dpo(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    settings = foundry.settings.curation
    if not settings.makes_pairs:
        foundry.home.lake.delete(CRITIC_DPO, ALL)
        off = "`curation.reviews.use` and `curation.preferences.scores` of the profile are off"
        note = {"pairs": dg.MetadataValue.text(off)}
        return CRITIC_DPO_SET.describe(context, foundry, {CRITIC_DPO.name: 0}, note)
    rows, dropped = build_critic_dpo(foundry.home, settings)
    return _record_set(CRITIC_DPO_SET, context, foundry, rows, {"left_out": dropped}, "source")


@dg.asset(**PLANNER_SFT_SET.asset_args())
def planner_sft(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    rows, unusable = build_planner_sft(foundry.home, foundry.settings.curation)
    quarantined = [{"document": name, "reason": reason} for name, reason in unusable[:20]]
    metadata = {"set_aside": table_metadata(quarantined)}
    return _record_set(PLANNER_SFT_SET, context, foundry, rows, metadata, "source")


@dg.asset(**PLANNER_RL_SET.asset_args())
def planner_rl(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    settings = foundry.settings
    if not PLANNER_RL_SET.in_profile(settings):
        foundry.home.lake.delete(PLANNER_RL, ALL)
        off = dg.MetadataValue.text("none: the profile has no `training.planner_rl`")
        return PLANNER_RL_SET.describe(context, foundry, {PLANNER_RL.name: 0}, {"requests": off})
    rows = build_planner_rl(foundry.home, settings.curation.planner, load_pack(settings.pack).name)
    shown = rows.slice(0, _SHOWN).select(["prompt_id", "request"]).to_pylist()
    note = {"requests": table_metadata(shown)}
    return PLANNER_RL_SET.record(context, foundry, {PLANNER_RL: rows}, note)


@dg.asset(**SEQUENCE_SET.asset_args())
def sequences(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    rows, dropped = build_sequences(foundry.home, foundry.settings.curation)
    return _record_set(SEQUENCE_SET, context, foundry, rows, {"left_out": dropped}, "form")


@dg.asset(**EXPORT_SET.asset_args())
def exports(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    metadata: dict[str, Any] = {}
    for card in export_all(foundry.home, foundry.settings.curation):
        metadata[card.name] = dg.MetadataValue.path(str(foundry.home.exports / card.name))
        metadata[f"{card.name}/card"] = dg.MetadataValue.md(card.markdown())
    return EXPORT_SET.describe(context, foundry, {}, metadata)


def _record_set(
    declared: Node,
    context: dg.AssetExecutionContext,
    foundry: FoundryResource,
    rows: pa.RecordBatchReader,
    metadata: dict[str, Any],
    counted: str | None = None,
    balance: BalanceSettings | None = None,
) -> dg.MaterializeResult:
    """`Node.record`, of a set that may have a target; `counted`: the column whose values the
    metadata counts."""
    (table,) = declared.tables
    has_target = table.name in targets_of(foundry)
    if has_target:
        rows = reduce_to_target(foundry, table, rows, balance)
    written = declared.write(context, foundry, {table: rows})
    if counted:
        values = foundry.home.lake.read(table, columns=[counted])[counted].to_pylist()
        metadata[f"{counted}s"] = dict(sorted(Counter(values).items()))
    if has_target:
        metadata |= progress_metadata(foundry, table.name)
    return declared.describe(context, foundry, written, metadata)


def _steps_metadata(report: StepsReport) -> dict[str, Any]:
    theta, kept = report.theta, sum(report.splits.values())
    by_unit = _variance_plot(report.unit_variance, theta, f"{report.unit}s")
    by_step = _variance_plot(report.variance, theta, "steps")
    outcomes = figures.filter_counts(kept, report.dropped)
    scores = figures.score_by_iteration(report.scores)
    return {
        "theta": theta,
        "split_unit": report.unit,
        "kept": kept,
        "dropped": report.dropped,
        "sft_steps": report.splits.get("sft", 0),
        "rl_steps": report.splits.get("rl", 0),
        "variance": image_metadata(by_unit, "Variance of scores, with theta"),
        "step_variance": image_metadata(
            by_step, "Variance of the scores of every kept step, with theta"
        ),
        "filter": image_metadata(outcomes, "Steps kept and dropped"),
        "score_by_iteration": image_metadata(scores, "Overall score by iteration"),
    }


def _variance_plot(values: np.ndarray, theta: float | None, what: str) -> bytes:
    counts, edges = np.histogram(values, bins=40)
    return figures.variance_histogram(edges.tolist(), counts.tolist(), theta, what)


def _record_critic_set(
    declared: Node,
    context: dg.AssetExecutionContext,
    foundry: FoundryResource,
    made: CriticSet,
    balance: BalanceSettings,
) -> dg.MaterializeResult:
    rows, dropped, verdicts = made
    plot = figures.balance_by_iteration(verdicts)
    metadata = {
        "left_out": dropped,
        "agent_prompt": version_of(foundry.settings.curation.critic.agent_prompt),
        "balance": image_metadata(plot, "Verdicts by iteration, before and after balancing"),
    }
    return _record_set(declared, context, foundry, rows, metadata, balance=balance)
