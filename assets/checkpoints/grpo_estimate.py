"""Estimates GRPO of the critic before it runs: steps, their time, and what rewards ask for."""

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from schemas import Table
from schemas.curation import CRITIC_RL
from schemas.trajectories import TRAJECTORIES
from training.grpo.recipe import GrpoSettings
from training.registry import CheckpointRegistry
from warehouse import Home
from warehouse.sql import verify_referenced
from warehouse.views import connect

from ..core.foundry import FoundryResource
from .recipes import LINEAGE

_CHECKPOINT = "critic_rl_checkpoint"
# Assumptions, for homes that have nothing to measure.
_ROWS_PER_TRAJECTORY = 1.5
_DRAWN_SHARE = 0.5
_MIN_MEASURED = 100  # answers that tell a share
_CPU_SECONDS = 0.2  # of a rollout, with its update: the packaged model on two cores
_GPU_SECONDS = 3.0  # of a rollout: 128 of an 8B model in some 50 s on 8 GPUs


@dataclass(frozen=True)
class GrpoLoad:
    """A training that is to come.

    `drawn_share`: of the answers, those whose prompt is drawn and scored: in the form `paper` of
    the reward those that reject, in the form `code` those to bad images. An upper bound: equal
    prompts are drawn once, malformed answers never.
    """

    steps: int
    rollouts: int  # of a step
    evaluated: int  # answers to rows that are not trained on, of all evaluations
    drawn_share: float
    draws_each: int  # drawings of an answer that is drawn
    drawn_measured: int  # answers, or rows of critic_rl, that it was measured on; 0: assumed
    seconds: float  # of a step, without waiting for rewards unless it is measured
    seconds_measured: str | None  # version of the checkpoint it was measured on; None: assumed
    gpus: int

    @property
    def draws(self) -> int:
        answers = self.steps * self.rollouts + self.evaluated
        return round(answers * self.drawn_share * self.draws_each)


def grpo_load(foundry: FoundryResource, trajectories: int) -> GrpoLoad | None:
    """The next training, after so many more trajectories; None where there is none to come."""
    if foundry.settings.training is None:
        return None
    home, settings = foundry.home, foundry.training.critic_rl
    version = LINEAGE[_CHECKPOINT](foundry).version
    if not trajectories and CheckpointRegistry(home).is_complete(_CHECKPOINT, version):
        return None
    rows = rows_to_come(foundry, CRITIC_RL, trajectories, _ROWS_PER_TRAJECTORY)
    dev = round(rows * settings.dev_share)
    steps = (rows - dev) // settings.batch
    steps = min(steps, settings.max_steps or steps)
    if not steps:
        return None
    drawn_share, drawn_measured = _drawn_share(home, settings)
    seconds, seconds_measured = _seconds_per_rollout(home, settings)
    rollouts = settings.batch * settings.n
    return GrpoLoad(
        steps=steps,
        rollouts=rollouts,
        evaluated=dev * ceil(steps / settings.save_every),
        drawn_share=drawn_share,
        draws_each=settings.reward.draws,
        drawn_measured=drawn_measured,
        seconds=seconds * rollouts,
        seconds_measured=seconds_measured,
        gpus=settings.gpus * settings.nodes,
    )


def rows_to_come(foundry: FoundryResource, table: Table, trajectories: int, assumed: float) -> int:
    """Rows of a set, with those of so many more trajectories, as many of each as there are now; no
    more than its target.

    Args:
        assumed: rows of a trajectory where there are none yet.
    """
    lake = foundry.home.lake
    rows, finished = lake.rows(table), lake.rows(TRAJECTORIES)
    ratio = rows / finished if rows and finished else assumed
    most = {str(name): rows for name, rows in foundry.settings.targets.items()}.get(table.name, inf)
    return round(min(rows + trajectories * ratio, most))


def _drawn_share(home: Home, settings: GrpoSettings) -> tuple[float, int]:
    """Share of the answers that are drawn, and the number of rows that it was measured on."""
    if "step" in settings.reward.without:
        return 0.0, 0
    accepted, table = {
        "paper": ("verdict", "rollouts"),  # null: malformed
        "code": ("evaluation.success", "critic_rl"),
    }[settings.reward.form]
    sql = f"select avg((not {accepted})::int) as share, count({accepted}) as rows from {table}"
    measured = _first(home, sql)
    enough = measured["rows"] >= _MIN_MEASURED
    return (measured["share"], measured["rows"]) if enough else (_DRAWN_SHARE, 0)


def _seconds_per_rollout(home: Home, settings: GrpoSettings) -> tuple[float, str | None]:
    """Of the newest training of this home, with its version; else an assumption."""
    for row in reversed(CheckpointRegistry(home).rows(_CHECKPOINT)):
        sql = "select count(*) / nullif(count(distinct step), 0) as rollouts from rollouts"
        rollouts = _first(home, f"{sql} where run = '{row.version}'")["rollouts"]
        seconds = json.loads(row.metrics).get("seconds")
        if rollouts and seconds:
            return seconds / rollouts, row.version
    return (_GPU_SECONDS / settings.devices if settings.gpus else _CPU_SECONDS), None


def _first(home: Home, sql: str) -> Mapping[str, Any]:
    verify_referenced(home, sql)
    with closing(connect(home)) as connection:
        row: Mapping[str, Any] = connection.sql(sql).to_arrow_table().to_pylist()[0]
        return row
