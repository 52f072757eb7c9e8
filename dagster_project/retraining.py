"""When an agent is trained again: enough of its rows have changed and are exported.

Which rows a checkpoint was trained on is known by their hashes, recorded in the home while its data
set is the current one.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import orjson

from assets.checkpoints import recipes
from assets.checkpoints.recipes import DataSet, Recipe
from assets.core.foundry import FoundryResource
from inference.backends.checkpoint.manifest import AgentRole
from schemas import TABLES
from schemas.training import CheckpointRow
from training.registry import CheckpointRegistry
from warehouse import Home
from warehouse.atomic import atomic_write
from warehouse.storage import storage_errors

_HASH_BYTES = 8


@dataclass(frozen=True)
class Decision:
    """Whether an agent is to be trained now, with the numbers that say why."""

    is_due: bool
    why: str


def decide(foundry: FoundryResource, role: AgentRole) -> Decision:
    """Whether enough of the agent's rows have changed, and are exported, and none of its
    checkpoints was trained on them before."""
    steps = trainings(foundry)[role]
    changed = sum(changed_rows(foundry, recipe) for recipe in steps)
    needed = foundry.training.retrain_after_rows
    why = f"{changed} of {needed} rows changed"
    if changed < needed:
        return Decision(False, why)
    if any(recipe.data and recipe.data.outdated for recipe in steps):
        return Decision(False, f"{why}, waits for `exports`")
    last = steps[-1]
    if CheckpointRegistry(foundry.home).is_complete(last.name, last.version):
        return Decision(False, f"{why}, trained on these before")
    return Decision(True, why)


def trainings(foundry: FoundryResource) -> dict[AgentRole, tuple[Recipe, ...]]:
    """The recipes that make each agent, in the order of the pipeline."""
    return {
        role: tuple(recipes.LINEAGE[name](foundry) for name in names)
        for role, names in recipes.agent_names(foundry).items()
    }


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
    for recipe in (recipe for steps in trainings(foundry).values() for recipe in steps):
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
