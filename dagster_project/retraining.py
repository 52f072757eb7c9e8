"""When an agent is trained again: enough rows changed, and no run that did it or is about to.

Which rows a checkpoint was trained on is known by their hashes, recorded in the home while its data
set is the current one.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import dagster as dg
import orjson

from assets.checkpoints import recipes
from assets.checkpoints.recipes import DataSet, Recipe
from assets.core.foundry import FoundryResource
from schemas import TABLES
from schemas.training import CheckpointRow
from training.registry import CheckpointRegistry
from warehouse import Home
from warehouse.atomic import atomic_write
from warehouse.storage import storage_errors

RECIPE_TAG = "interleave/recipe"
_HASH_BYTES = 8
MOST_RUNS = 3  # on the same rows
_RUNS = 100  # of a job that are looked at
_PAUSE_SECONDS = 600  # after the first failed run, twice as long after the second


@dataclass(frozen=True)
class Decision:
    """Whether a job's run is requested, with the numbers that say why."""

    requested: bool
    why: str
    version: str
    number: int  # of earlier runs of this version


def agents(foundry: FoundryResource) -> dict[str, tuple[Recipe, ...]]:
    """The recipes that each retraining job makes, in the order in which it does."""
    return {
        f"retrain_{role}": tuple(recipes.LINEAGE[name](foundry) for name in names)
        for role, names in recipes.agent_names(foundry).items()
    }


def decide(
    foundry: FoundryResource, instance: dg.DagsterInstance, job: str, steps: tuple[Recipe, ...]
) -> Decision:
    """Whether `job` is to run now: its data has changed enough and is exported, or its last run on
    these rows failed and may be tried again."""
    changed = sum(changed_rows(foundry, recipe) for recipe in steps)
    needed = foundry.training.retrain_after_rows
    version = "-".join(recipe.version for recipe in steps)
    runs = instance.get_run_records(dg.RunsFilter(job_name=job), limit=_RUNS)
    own = [record for record in runs if record.dagster_run.tags.get(RECIPE_TAG) == version]
    outdated = any(recipe.data and recipe.data.outdated for recipe in steps)
    row = _row(foundry, steps[-1])
    against = _unfinished(runs)
    if against is None and _is_failed(own, row):
        against = "waits for `exports`" if outdated else _not_yet(own)
    elif against is None:
        against = _not_now(changed >= needed, outdated, row, own)
    why = ", ".join(filter(None, (f"{changed} of {needed} rows changed", against)))
    return Decision(against is None, why, version, len(own))


def _unfinished(runs: Sequence[dg.RunRecord]) -> str | None:
    names = (each.dagster_run.run_id for each in runs if not each.dagster_run.is_finished)
    return next((f"run {name} is not finished" for name in names), None)


def _is_failed(own: Sequence[dg.RunRecord], row: CheckpointRow | None) -> bool:
    """Whether the last run failed for another reason than a worse checkpoint."""
    failed = bool(own) and own[0].dagster_run.status == dg.DagsterRunStatus.FAILURE
    return failed and not (row and row.status == "rejected")


def _not_now(
    enough: bool, outdated: bool, row: CheckpointRow | None, own: Sequence[dg.RunRecord]
) -> str | None:
    """Why no first run on these rows is requested (empty: too few changed); None if it is."""
    if not enough:
        return ""
    if outdated:
        return "waits for `exports`"
    if row:
        return "trained on these before"
    if own and own[0].dagster_run.status == dg.DagsterRunStatus.CANCELED:
        return f"run {own[0].dagster_run.run_id} was canceled"
    return None


def _not_yet(own: Sequence[dg.RunRecord]) -> str | None:
    """Why the failed run, the first of those on the same rows, is not followed by another now;
    None if it is."""
    newest = own[0]
    count = sum(each.dagster_run.status == dg.DagsterRunStatus.FAILURE for each in own)
    name = newest.dagster_run.run_id
    if count >= MOST_RUNS:
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
        now = _row_hashes(recipe.data)
    return max((now - before).total(), (before - now).total())


def record_rows(foundry: FoundryResource) -> None:
    """Record the rows of the current data sets, and forget those that nothing was trained on."""
    for recipe in (recipe for steps in agents(foundry).values() for recipe in steps):
        if recipe.data is None or recipe.data.outdated:
            continue
        newest = _newest(foundry, recipe)
        path = _path(foundry.home, recipe.name, recipe.data.version)
        if not path.exists():
            hashes = sorted(_row_hashes(recipe.data).elements())
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


def _row_hashes(data: DataSet) -> Counter[bytes]:
    rows = chain.from_iterable(data.sources.rows(TABLES[name]) for name in data.tables)
    return Counter(
        hashlib.blake2b(orjson.dumps(row), digest_size=_HASH_BYTES).digest() for row in rows
    )


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
