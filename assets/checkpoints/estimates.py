"""Estimates trainings before they run: rows, steps, time, and what the rewards of GRPO ask for."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

from schemas import Table
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_RL, PLANNER_SFT
from schemas.training import CRITIC, RL_PLANNER
from schemas.trajectories import TRAJECTORIES
from training.grpo.recipe import CriticGrpoSettings, GrpoSettings
from training.registry import CheckpointRegistry
from training.sft.recipe import SftSettings, read_recipe
from training.stage_needs import base_size, lora_rank, sft_row_tokens
from warehouse import Home
from warehouse.sql import verify_referenced
from warehouse.views import connect

from ..core.foundry import FoundryResource
from .recipes import LINEAGE

# Assumptions, for homes that have nothing to measure.
_ROWS_PER_TRAJECTORY = 1.5
_DRAWN_SHARE = 0.5
_PLAYED_SHARE = 0.5  # of a trajectory's drawings, after the attempt that a row is about
_MIN_MEASURED = 100  # answers that tell a share
_CPU_ROLLOUT_SECONDS = 0.2  # of an answer, with its update: the packaged model on two cores
_GPU_SECONDS = 3.0  # of an answer: 128 of an 8B model in some 50 s on 8 GPUs


@dataclass(frozen=True)
class GrpoLoad:
    """A training that is to come.

    `drawn_share`: of the critic's answers, those whose prompt is drawn and scored: in the form
    `paper` of the reward those that reject, in the form `code` those to bad images. An upper bound:
    equal prompts are drawn once, malformed answers never. Of the planner's, whose outcomes may
    count, all.
    """

    name: str
    steps: int
    rollouts: int  # of a step
    evaluated: int  # answers to rows that are not trained on, of all evaluations
    drawn_share: float
    draws_each: float  # drawings of an answer that is drawn
    drawn_measured: int  # answers, or rows of critic_rl, that it was measured on; 0: assumed
    seconds: float  # of a step, at most where it is not measured: rewards overlap with sampling
    seconds_measured: str | None  # version of the checkpoint it was measured on; None: assumed
    gpus: int

    @property
    def answers(self) -> int:
        return self.steps * self.rollouts + self.evaluated

    @property
    def draws(self) -> int:
        return round(self.answers * self.drawn_share * self.draws_each)

    @property
    def hours(self) -> float:
        return self.steps * self.seconds / 3600

    @property
    def gpu_hours(self) -> float:
        return self.hours * self.gpus

    def waiting_for_rewards(self, hours: float) -> "GrpoLoad":
        """The same, which waits for all of its rewards as long unless its time was measured."""
        if self.seconds_measured:
            return self
        return replace(self, seconds=self.seconds + hours * 3600 / self.steps)


def grpo_loads(foundry: FoundryResource, trajectories: int, attempts: float) -> Iterator[GrpoLoad]:
    """The next trainings, after so many more trajectories.

    `attempts`: drawings of a trajectory.
    """
    training, home = foundry.settings.training, foundry.home
    if training is None:
        return
    version = LINEAGE[CRITIC](foundry).version
    if trajectories or not CheckpointRegistry(home).is_complete(CRITIC, version):
        rows = rows_to_come(foundry, CRITIC_RL, trajectories, _ROWS_PER_TRAJECTORY)
        drawn_share, drawn_measured = _drawn_share(home, training.critic_rl)
        each = 1.0 if training.critic_rl.reward.of == "step" else attempts * _PLAYED_SHARE
        shares = drawn_share, drawn_measured, each * training.critic_rl.reward.draws
        yield from _grpo_load(home, CRITIC, training.critic_rl, rows, shares)
    if (settings := training.planner_rl) is None:
        return
    version = LINEAGE[RL_PLANNER](foundry).version
    if trajectories or not CheckpointRegistry(home).is_complete(RL_PLANNER, version):
        rows = home.lake.rows(PLANNER_RL) or foundry.settings.curation.planner.rl_prompts
        draws = float(settings.reward.of != "plan"), 0, attempts
        yield from _grpo_load(home, RL_PLANNER, settings, rows, draws)


def _grpo_load(
    home: Home, checkpoint: str, settings: GrpoSettings, rows: int, draws: tuple[float, int, float]
) -> Iterator[GrpoLoad]:
    """None where the rows are too few. `draws`: share, what it was measured on, of each answer."""
    dev = round(rows * settings.dev_share)
    steps = (rows - dev) // (settings.batch * settings.candidates)
    steps = min(steps, settings.max_steps or steps)
    if not steps:
        return
    drawn_share, drawn_measured, draws_each = draws
    answers_each = 1 + draws_each if settings.plays_episodes else 1.0
    seconds, seconds_measured = _seconds_per_rollout(home, checkpoint, settings, answers_each)
    rollouts = settings.batch * settings.n
    yield GrpoLoad(
        name=checkpoint.removesuffix("_checkpoint"),
        steps=steps,
        rollouts=rollouts,
        evaluated=dev * ceil(steps / settings.save_every),
        drawn_share=drawn_share,
        draws_each=draws_each,
        drawn_measured=drawn_measured,
        seconds=seconds * rollouts,
        seconds_measured=seconds_measured,
        gpus=settings.gpus * settings.nodes,
    )


def rows_to_come(foundry: FoundryResource, table: Table, trajectories: int, assumed: float) -> int:
    """Rows of a set, with those of so many more trajectories, as many of each as there are now; no
    more than its target.

    `assumed`: rows of a trajectory where there are none yet.
    """
    lake = foundry.home.lake
    rows, finished = lake.rows(table), lake.rows(TRAJECTORIES)
    ratio = rows / finished if rows and finished else assumed
    most = {str(name): rows for name, rows in foundry.settings.targets.items()}.get(table.name, inf)
    return round(min(rows + trajectories * ratio, most))


def _drawn_share(home: Home, settings: CriticGrpoSettings) -> tuple[float, int]:
    """Share of the answers that are drawn, and the number of rows that it was measured on."""
    if "step" in settings.reward.without:
        return 0.0, 0
    if settings.reward.of != "step":
        return 1.0, 0
    accepted, table = {
        "paper": ("verdict", "rollouts"),  # null: malformed
        "code": ("evaluation.success", "critic_rl"),
    }[settings.reward.form]
    sql = f"select avg((not {accepted})::int) as share, count({accepted}) as rows from {table}"
    measured = query(home, sql)[0]
    enough = measured["rows"] >= _MIN_MEASURED
    return (measured["share"], measured["rows"]) if enough else (_DRAWN_SHARE, 0)


def _seconds_per_rollout(
    home: Home, checkpoint: str, settings: GrpoSettings, answers_each: float
) -> tuple[float, str | None]:
    """Of the newest training of this home, with its version; else an assumption, by its answers."""
    per_step = "select count(*) / nullif(count(distinct step), 0) as rollouts from rollouts"
    for version, metrics in _measured_trainings(home, checkpoint):
        rollouts = query(home, f"{per_step} where run = '{version}'")[0]["rollouts"]
        if rollouts and metrics.get("seconds"):
            return metrics["seconds"] / rollouts, version
    seconds = _GPU_SECONDS / settings.devices if settings.gpus else _CPU_ROLLOUT_SECONDS
    return seconds * answers_each, None


def _measured_trainings(home: Home, checkpoint: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Versions and metrics of the checkpoints of this home, the newest first."""
    for row in reversed(CheckpointRegistry(home).rows(checkpoint)):
        yield row.version, json.loads(row.metrics)


def query(home: Home, sql: str) -> list[dict[str, Any]]:
    """The rows of a query over the lake; StorageError: a table of it is damaged."""
    verify_referenced(home, sql)
    with closing(connect(home)) as connection:
        return connection.sql(sql).to_arrow_table().to_pylist()


_CPU_ROW_SECONDS = 0.07  # of a row: the packaged model on two cores
# Rows of a trajectory where there are none to measure: those of 100 prompts of the sketch world.
_SETS: dict[str, tuple[Table, float]] = {
    "planner_sft": (PLANNER_SFT, 1.8),
    "critic_sft": (CRITIC_SFT, 3.9),
}


@dataclass(frozen=True)
class SftEstimate:
    """A training that is to come."""

    name: str
    rows: int
    steps: int
    seconds: float | None  # None: the size of the base model is unknown before its download
    measured: str | None  # version of the checkpoint whose steps took as long; None: assumed
    gpus: int

    @property
    def gpu_hours(self) -> float:
        return (self.seconds or 0.0) * self.gpus / 3600


def sft_estimates(foundry: FoundryResource, trajectories: int) -> list[SftEstimate]:
    """Trainings of planner and critic, after so many more trajectories, unless they are done."""
    if foundry.settings.training is None:
        return []
    estimates = []
    for name, (table, assumed) in _SETS.items():
        registry, version = CheckpointRegistry(foundry.home), LINEAGE[f"{name}_checkpoint"](foundry)
        if trajectories or not registry.is_complete(f"{name}_checkpoint", version.version):
            rows = rows_to_come(foundry, table, trajectories, assumed)
            estimates.append(_sft_estimate(foundry, name, rows))
    return [each for each in estimates if each.steps]


def _sft_estimate(foundry: FoundryResource, name: str, rows: int) -> SftEstimate:
    settings: SftSettings = getattr(foundry.training, name)
    recipe = read_recipe(settings)
    trained = rows - round(rows * settings.dev_share)
    epochs = float(recipe.options.get("num_train_epochs", 3))  # LLaMA-Factory's own
    steps = recipe.options.get("max_steps") or ceil(trained * epochs / recipe.batch)
    a_step, measured = _assumed_step(foundry, name, settings), None
    for version, metrics in _measured_trainings(foundry.home, f"{name}_checkpoint"):
        if metrics.get("steps") and metrics.get("seconds"):
            a_step, measured = metrics["seconds"] / metrics["steps"], version
            break
    seconds = None if a_step is None else steps * a_step
    gpus = recipe.gpus * settings.nodes
    return SftEstimate(name, rows, steps if rows else 0, seconds, measured, gpus)


def _assumed_step(foundry: FoundryResource, name: str, settings: SftSettings) -> float | None:
    recipe, size = read_recipe(settings), base_size(foundry.settings.training)
    if not recipe.gpus:
        return _CPU_ROW_SECONDS * recipe.batch
    if size is None:
        return None
    tokens = recipe.batch * sft_row_tokens(name, recipe)
    return size.training_seconds(tokens, recipe.gpus * settings.nodes, lora_rank(settings))
