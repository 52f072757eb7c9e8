"""When an agent is trained again: enough rows changed, and no run that did it or is about to.

Which rows a checkpoint was trained on is known by their hashes, recorded in the home while its data
set is the current one.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import orjson

from assets.checkpoints import recipes
from assets.checkpoints.recipes import DataSet, Recipe
from assets.core.foundry import FoundryResource
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT
from schemas.training import CheckpointRow
from training.registry import CheckpointRegistry
from warehouse import Home
from warehouse.atomic import atomic_write
from warehouse.storage import storage_errors

RECIPE_TAG = "interleave/recipe"
_TABLES = {table.name: table for table in (PLANNER_SFT, CRITIC_SFT, CRITIC_RL)}
_HASH_BYTES = 8
_MOST_RUNS = 3  # on the same rows
_RUNS = 100  # of a job that are looked at
_PAUSE_SECONDS = 600  # after the first failed run, twice as long after the second


@dataclass(frozen=True)
class Decision:
    """Whether a job's run is requested, and the numbers that say why."""

    requested: bool
    why: str
    version: str = ""
    number: int = 0  # of earlier runs of this version


def agents(foundry: FoundryResource) -> dict[str, tuple[Recipe, ...]]:
    """The recipes that each retraining job makes, in the order in which it does."""
    return {
        "retrain_planner": (recipes.planner_sft(foundry),),
        "retrain_critic": (recipes.critic_sft(foundry), recipes.critic_rl(foundry)),
    }


def decide(
    foundry: FoundryResource, instance: dg.DagsterInstance, job: str, steps: tuple[Recipe, ...]
) -> Decision:
    """Whether `job` is to run now: its data has changed enough and is exported, or its last run on
    these rows failed and may be tried again."""
    needed = foundry.training.retrain_after_rows
    changed = sum(changed_rows(foundry, recipe) for recipe in steps)
    rows = f"{changed} of {needed} rows changed"
    runs = instance.get_run_records(dg.RunsFilter(job_name=job), limit=_RUNS)
    for run in (record.dagster_run for record in runs):
        if not run.is_finished:
            return Decision(False, f"{rows}, run {run.run_id} is not finished")
    version = "-".join(recipe.version for recipe in steps)
    own = [record for record in runs if record.dagster_run.tags.get(RECIPE_TAG) == version]
    last = own[0].dagster_run.status if own else None
    row = _row(foundry, steps[-1])
    again = last == dg.DagsterRunStatus.FAILURE and not (row and row.status == "rejected")
    if changed < needed and not again:
        return Decision(False, rows)
    if any(recipe.data and recipe.data.outdated for recipe in steps):
        return Decision(False, f"{rows}, waits for `exports`")
    if again and (reason := _not_yet(own)):
        return Decision(False, f"{rows}, {reason}")
    if not again and row:
        return Decision(False, f"{rows}, trained on these before")
    if last == dg.DagsterRunStatus.CANCELED:
        return Decision(False, f"{rows}, run {own[0].dagster_run.run_id} was canceled")
    return Decision(True, rows, version, len(own))


def _not_yet(own: Sequence[dg.RunRecord]) -> str | None:
    """Why a failed run is not started again now; None if it is.

    Args:
        own: the runs on the same rows, the last one first.
    """
    newest, count = own[0], len(own)
    name = newest.dagster_run.run_id
    if count >= _MOST_RUNS:
        return f"{count} runs on these failed, last {name}"
    ended = newest.end_time or newest.update_timestamp.timestamp()
    seconds = ended + _PAUSE_SECONDS * 2 ** (count - 1) - time.time()
    return f"run {name} failed, the next starts in {seconds:.0f} s" if seconds > 0 else None


def changed_rows(foundry: FoundryResource, recipe: Recipe) -> int:
    """Rows that came, went or changed since the newest checkpoint of a recipe was trained.

    Where that checkpoint's rows were not recorded, it is by how many there are more now.
    """
    if recipe.data is None:
        return 0
    newest = _newest(foundry, recipe)
    if newest is None:
        return recipe.data.rows
    if newest.dataset_version == recipe.data.version:
        return 0
    before = _recorded(foundry.home, recipe.name, str(newest.dataset_version))
    if before is None:
        trained_on = orjson.loads(newest.metrics).get("dataset_rows", 0)
        return max(0, recipe.data.rows - trained_on)
    now = _recorded(foundry.home, recipe.name, recipe.data.version)
    if now is None:
        now = _row_hashes(foundry.home, recipe.data)
    return max((now - before).total(), (before - now).total())


def record_rows(foundry: FoundryResource) -> None:
    """Record the rows of the current data sets, and forget those that nothing was trained on."""
    for recipe in (recipe for steps in agents(foundry).values() for recipe in steps):
        if recipe.data is None or recipe.data.outdated:
            continue
        newest = _newest(foundry, recipe)
        path = _path(foundry.home, recipe.name, recipe.data.version)
        if not path.exists():
            hashes = sorted(_row_hashes(foundry.home, recipe.data).elements())
            with storage_errors("written", path):
                atomic_write(path, b"".join(hashes))
        needed = {recipe.data.version, newest and newest.dataset_version}
        for other in path.parent.glob("*.bin"):
            if other.stem not in needed:
                other.unlink(missing_ok=True)


def _newest(foundry: FoundryResource, recipe: Recipe) -> CheckpointRow | None:
    return next(reversed(CheckpointRegistry(foundry.home).rows(recipe.name)), None)


def _row(foundry: FoundryResource, recipe: Recipe) -> CheckpointRow | None:
    """The checkpoint of a recipe, if it is complete."""
    registry = CheckpointRegistry(foundry.home)
    if registry.is_complete(recipe.name, recipe.version):
        return registry.find(recipe.name, recipe.version)
    return None


def _row_hashes(home: Home, data: DataSet) -> Counter[bytes]:
    hashes: Counter[bytes] = Counter()
    for name in data.tables:
        for batch in home.lake.read(_TABLES[name]).to_batches(max_chunksize=1024):
            hashes.update(_hashed(row) for row in batch.to_pylist())
    return hashes


def _hashed(row: object) -> bytes:
    return hashlib.blake2b(orjson.dumps(row), digest_size=_HASH_BYTES).digest()


def _recorded(home: Home, recipe: str, version: str) -> Counter[bytes] | None:
    path = _path(home, recipe, version)
    if not path.exists():
        return None
    content = path.read_bytes()
    return Counter(
        content[start : start + _HASH_BYTES] for start in range(0, len(content), _HASH_BYTES)
    )


def _path(home: Home, recipe: str, version: str) -> Path:
    return home.local / "trained_rows" / recipe / f"{version}.bin"
