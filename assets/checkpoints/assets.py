"""The assets from data sets to checkpoints: base model, SFT and GRPO of planner and critic."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from inference.calls.call_index import CallIndex
from inference.generation.trajectory_view import AttemptView, StepView, TrajectoryView
from inference.roles import PlanStep
from schemas.curation import CRITIC_RL, PLANNER_RL
from schemas.training import (
    BASE_MODEL,
    CHECKPOINTS,
    CRITIC,
    PLANNER,
    RL_PLANNER,
    ROLLOUTS,
    SFT_CRITIC,
    CheckpointRow,
    RolloutRow,
)
from schemas.trajectories import MODEL_CALLS, ModelCallRow
from training.grpo.driver import ROLLOUTS as ROLLOUT_JOURNAL
from training.grpo.driver import judge_partition
from training.launch.jobs import TrainingProgress
from training.registry import CheckpointRegistry
from training.rewards.rollouts import (
    DEV_REWARD,
    LAST_STEPS,
    find_collapse,
    judged_prompts,
    rollout_rows,
)
from training.tracking import tracking_link
from warehouse import Home, ImageStore

from ..core.checks import Violations, blocking_checks
from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, model_call_costs, table_metadata
from ..core.node import NODES, Node
from ..core.plotting import ACCENT, GOOD, OTHER, figure_png, new_figure, small_png
from ..trajectories.contact_sheet import contact_sheet
from .recipes import LINEAGE, Recipe, critic_rl, newest_version
from .training import TrainingRecord, ensure_checkpoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROLLOUT_COLUMNS = ("step", "status", "truth", "verdict", "refined_prompt", "reward", "response")
_MAX_ROLLOUTS = 6
_COLOURS = {"loss": OTHER, "reward": GOOD}
_COSTS = ("metrics/cost_usd", "metrics/gpu_hours", "metrics/hours")
_SMOOTHING = 0.9  # weight of earlier points in the running mean


def _checkpoint(name: str, **fields: Any) -> dg.AssetsDefinition:
    """The asset of a checkpoint, whose content is its recipe's version if that is complete.

    Where a profile trains, but lacks one of its sections, it is none, and says so.
    """
    tables = fields.get("tables", (CHECKPOINTS,))

    def inputs(foundry: FoundryResource, _instance: dg.DagsterInstance) -> str | None:
        return None if _is_none(declared, foundry) else LINEAGE[name](foundry).version

    def output_hashes(foundry: FoundryResource) -> list[str | None]:
        if _is_none(declared, foundry):
            return []
        recipe, lake = LINEAGE[name](foundry), foundry.home.lake
        complete = CheckpointRegistry(foundry.home).is_complete(recipe.name, recipe.version)
        rollouts = [lake.content_hash(ROLLOUTS, recipe.version)] if ROLLOUTS in tables else []
        return [recipe.version if complete else None, *rollouts]

    shared: dict[str, Any] = {
        "name": name,
        "group": "checkpoints",
        "tables": tables,
        "kinds": frozenset({"pytorch", "huggingface"}),
        "pool": "gpu_train",
        "inputs": inputs,
        "output_hashes": output_hashes,
    }
    declared: Node = Node(**shared | fields)

    @dg.asset(**declared.asset_args())
    def checkpoint(
        context: dg.AssetExecutionContext, foundry: FoundryResource
    ) -> dg.MaterializeResult:
        if _is_none(declared, foundry):
            missing = ", ".join(declared.missing_sections(foundry.settings))
            note = {"checkpoint": f"none: the profile has no `{missing}`"}
            return declared.describe(context, foundry, {each.name: 0 for each in tables}, note)
        recipe = LINEAGE[name](foundry)
        # Of the rows that it is trained on, which may change meanwhile.
        fingerprint = declared.fingerprint(foundry, context.instance, None)
        row, record = asyncio.run(ensure_checkpoint(context, foundry, recipe))
        counts, metadata = {"checkpoints": 1}, dict[str, Any]()
        if ROLLOUTS in tables:
            rollouts = _store_rollouts(foundry, recipe)
            counts["rollouts"] = len(rollouts)
            metadata = _rollout_metadata(foundry, recipe, rollouts)
        # What is shown first, ahead of the numbers: images, plot, costs.
        metadata |= _checkpoint_metadata(row, record) | _tracking_metadata(foundry, recipe)
        return declared.describe(context, foundry, counts, metadata, fingerprint)

    return checkpoint


def _is_none(declared: Node, foundry: FoundryResource) -> bool:
    """Whether the profile trains, but not this checkpoint."""
    return foundry.settings.training is not None and not declared.in_profile(foundry.settings)


base_model = _checkpoint(
    BASE_MODEL,
    description="The model that planner and critic start from: packaged, pretrained here to "
    "describe images, or downloaded.",
    sections=("training.base_model",),
)
planner_sft_checkpoint = _checkpoint(
    PLANNER,
    description="The planner: the base model fine-tuned on plans with LLaMA-Factory.",
    deps=(BASE_MODEL, "planner_sft", "exports"),
    sections=("training.planner_sft",),
)
planner_rl_checkpoint = _checkpoint(
    RL_PLANNER,
    description="The planner, trained with verl's GRPO on requests without a teacher's plan, and "
    "rewarded for plans that a grader finds right. Beyond the paper, which reinforces the critic "
    "alone; made where a profile has `training.planner_rl`.",
    tables=(CHECKPOINTS, ROLLOUTS),
    deps=(PLANNER, "planner_rl", "exports", "rubrics"),
    arrows=(PLANNER, "planner_rl", "rubrics"),
    sections=("training.planner_rl",),
)
critic_sft_checkpoint = _checkpoint(
    SFT_CRITIC,
    description="The critic before GRPO: the base model fine-tuned on verdicts and rewritten "
    "prompts with LLaMA-Factory.",
    deps=(BASE_MODEL, "critic_sft", "exports"),
    sections=("training.critic_sft",),
)
critic_rl_checkpoint = _checkpoint(
    CRITIC,
    description="The critic: trained with verl's GRPO, rewarded by what its verdicts and rewritten "
    "prompts lead to (paper, section 3.4).",
    tables=(CHECKPOINTS, ROLLOUTS),
    deps=(SFT_CRITIC, "critic_rl", "exports", "rubrics"),
    arrows=(SFT_CRITIC, "critic_rl", "rubrics"),
    sections=("training.critic_rl",),
)


def _rollout_metadata(
    foundry: FoundryResource, recipe: Recipe, rollouts: Sequence[RolloutRow]
) -> dict[str, Any]:
    images = {row["row_id"]: row.get("edited_image") for row in _rows(recipe)}
    sheet, last = rollouts_sheet(foundry.home, images, rollouts), rollouts[-_MAX_ROLLOUTS:]
    samples = [{column: getattr(row, column) for column in _ROLLOUT_COLUMNS} for row in last]
    return {
        **({"rollouts": image_metadata(sheet, "Rewritten prompts, drawn")} if sheet else {}),
        **model_call_costs(_store_calls(foundry, recipe)),
        "samples": table_metadata(samples),
    }


def _store_rollouts(foundry: FoundryResource, recipe: Recipe) -> list[RolloutRow]:
    """Write a training's rollouts from its journal to the lake; returns those stored."""
    folder = CheckpointRegistry(foundry.home).job_folder(recipe.name, recipe.version)
    if (journal := folder / ROLLOUT_JOURNAL).exists():
        foundry.home.lake.write(ROLLOUTS, rollout_rows(journal), recipe.version)
    return foundry.rows(ROLLOUTS, recipe.version)


def _store_calls(foundry: FoundryResource, recipe: Recipe) -> list[ModelCallRow]:
    """Write the calls of a training's rewards from their journal to the lake; returns them."""
    lake, partition = foundry.home.lake, f"{recipe.name}-{recipe.version}"
    journals = (recipe.version, judge_partition(recipe.version))
    indices = [CallIndex.read(foundry.home.journal(recipe.name, name)) for name in journals]
    calls = [call for index in indices for call in index.ledger()]
    if calls:
        # The journal has them under the row whose answer asked for them, or the row's prompt.
        prompts = {row["row_id"]: row["prompt_id"] for row in _rows(recipe)}
        prompts |= {prompt: prompt for prompt in prompts.values()}
        of_prompts = [
            call.model_copy(update={"prompt_id": prompts.get(call.prompt_id, "")}) for call in calls
        ]
        lake.write(MODEL_CALLS, of_prompts, partition)
    return foundry.rows(MODEL_CALLS, partition) if lake.exists(MODEL_CALLS, partition) else []


def _tracking_metadata(foundry: FoundryResource, recipe: Recipe) -> dict[str, Any]:
    folder = CheckpointRegistry(foundry.home).job_folder(recipe.name, recipe.version)
    link = tracking_link(foundry.training.tracking, folder)
    if link is None:
        return {}
    kind = dg.MetadataValue.url if "://" in link else dg.MetadataValue.path
    return {"tracking": kind(link)}


def _checkpoint_metadata(row: CheckpointRow, record: TrainingRecord) -> dict[str, Any]:
    curves = _training_curves(record.curves)
    metrics = {f"metrics/{name}": value for name, value in record.metrics.items()}
    return {
        **({"curves": image_metadata(curves, "Loss and reward by step")} if curves else {}),
        **{name: metrics[name] for name in _COSTS if name in metrics},
        "version": row.version,
        "status": row.status,
        "checkpoint": dg.MetadataValue.path(row.uri),
        "parent": row.parent or "none",
        "data_set_version": row.dataset_version or "none",
        "data_set_rows": record.dataset_rows,
        "card": dg.MetadataValue.md(Path(row.uri, "README.md").read_text("utf-8")),
        **metrics,
    }


def _training_curves(curves: Sequence[TrainingProgress]) -> bytes | None:
    """Loss and reward by step, as a PNG; None when neither was reported."""
    known = [name for name in _COLOURS if any(getattr(point, name) is not None for point in curves)]
    if not known:
        return None
    headline = f"{' and '.join(known).capitalize()} during training"
    with new_figure(1.2 + 2.2 * len(known), headline, rows=[1] * len(known)) as (figure, axes):
        panels = list(axes) if len(known) > 1 else [axes]
        for panel, name in zip(panels, known, strict=True):
            _curve(panel, curves, name)
        panels[-1].set_xlabel("step")
        return figure_png(figure)


def _curve(axes: "Axes", curves: Sequence[TrainingProgress], name: str) -> None:
    points = [(p.step, getattr(p, name)) for p in curves if getattr(p, name) is not None]
    steps, values = zip(*points, strict=True)
    means = list(accumulate(values, lambda m, value: _SMOOTHING * m + (1 - _SMOOTHING) * value))
    axes.plot(steps, values, "-", color=_COLOURS[name], alpha=0.35, linewidth=1)
    axes.plot(steps, means, "-", color=_COLOURS[name], label="running mean")
    axes.plot(steps[-1:], values[-1:], "o", color=ACCENT, label=f"last: {values[-1]:.4g}")
    axes.set_ylabel(name)
    if name == "reward" and (dev := [p for p in curves if DEV_REWARD in p.extra]):
        evaluated = [(point.step, point.extra[DEV_REWARD]) for point in dev]
        axes.plot(*zip(*evaluated, strict=True), "s", color=OTHER, label="dev rows")
    axes.grid(axis="y")
    axes.legend(loc="best")


def _rows(recipe: Recipe) -> Iterator[dict[str, Any]]:
    """The rows that GRPO trains on."""
    if recipe.data is None:
        return iter(())
    return recipe.data.sources.rows(PLANNER_RL if recipe.role == "planner" else CRITIC_RL)


def rollouts_sheet(
    home: Home, judged: Mapping[str, str | None], rollouts: Sequence[RolloutRow]
) -> bytes | None:
    """A row for each of the last rollouts whose prompt was drawn, as a PNG; None without one.

    `judged`: row that was trained on -> image that it judges.
    """
    drawn = [row for row in rollouts if row.image][-_MAX_ROLLOUTS:]
    if not drawn:
        return None
    views = [_rollout_view(home.images, row, judged.get(row.row_id)) for row in drawn]
    return small_png(contact_sheet(views, image_size=128), colours=255)


def _rollout_view(images: ImageStore, row: RolloutRow, judged: str | None) -> TrajectoryView:
    steps = []
    for number, (name, image) in enumerate({"judged": judged, "drawn again": row.image}.items(), 1):
        stored = image is not None and images.exists(image)
        attempts = [AttemptView(images.get(image), chosen=True)] if image and stored else []
        steps.append(StepView(PlanStep(number, name), attempts))
    verdict = "accepted" if row.verdict else "rejected"
    right = "right" if row.verdict == row.truth else "wrong"
    return TrajectoryView(
        row.refined_prompt or "(the prompt before)",
        steps=steps,
        category=f"step {row.step}: {verdict} ({right})",
        subcategory="no reward" if row.reward is None else f"reward {row.reward:.2f}",
    )


def _checkpoint_checks(name: str) -> dg.AssetChecksDefinition:
    def rule(foundry: FoundryResource, _partition: str | None) -> Violations:
        if _is_none(NODES[name], foundry):
            return []
        version = newest_version(foundry.home, LINEAGE[name](foundry))
        if CheckpointRegistry(foundry.home).is_complete(name, version):
            return []
        return [{"checkpoint": name, "version": version, "problem": "incomplete"}]

    description = "The checkpoint's row and all its files exist"
    return blocking_checks(NODES[name], folder_whole=(description, rule))


checkpoint_checks = [_checkpoint_checks(name) for name in LINEAGE]


@dg.asset_check(
    asset=critic_rl_checkpoint,
    name="policy_not_collapsed",
    description="The last rollouts distinguish good images from bad ones and rewrite prompts",
)
def policy_not_collapsed(foundry: FoundryResource) -> dg.AssetCheckResult:
    """Not blocking: evaluation measures the effect, and promotion decides by that."""
    recipe = critic_rl(foundry)
    rows = foundry.rows(ROLLOUTS, newest_version(foundry.home, recipe))
    newest = max((row.step for row in rows), default=0)
    last = [row for row in rows if row.step > newest - LAST_STEPS]
    collapse = find_collapse(last, judged_prompts(_rows(recipe)))
    return dg.AssetCheckResult(
        passed=collapse is None,
        description=f"the policy {collapse}" if collapse else None,
        metadata={"collapse": collapse or "none", "rollouts": len(last)},
    )
