"""Branches in the studio: recorded trajectories and what `interleave branch` made of them."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import pyarrow.compute as pc
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from schemas.prompts import PROMPTS
from schemas.trajectories import (
    ATTEMPT_KEY,
    ATTEMPTS,
    BRANCH_ATTEMPTS,
    BRANCHES,
    AttemptRow,
    BranchRow,
)
from warehouse import Home

_TREES_PER_PAGE = 10


class BranchPath(BaseModel):
    """The recorded trajectory, or a branch: a row of the drawing."""

    id: str
    parent_id: str | None = Field(description="What it leaves; null: the recorded trajectory")
    summary: str = Field(description="What is changed there, and how it ended")
    first: int = Field(description="Attempts that are its parent's, before the change")
    attempts: list[AttemptRow] = Field(description="All, in order, those before the change too")


class BranchTree(BaseModel):
    """A recorded trajectory with all its branches."""

    trajectory_id: str
    shard: str
    request: str = Field(description="What was requested")
    paths: list[BranchPath] = Field(description="The recorded one first, each below its parent")


class BranchTreeList(BaseModel):
    """A page of trajectories that have branches."""

    trees: list[BranchTree]
    total: int = Field(description="Number of all of them")
    next_offset: int | None = Field(description="Offset of the next page; null: there is none")


def branch_router(home: Home) -> APIRouter:
    """The route; images are those of reviews, as every key may see the bank."""
    router = APIRouter(prefix="/studio/branches", tags=["studio"])
    reader = asyncio.Semaphore(1)

    @router.get("")
    async def branches(offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0) -> BranchTreeList:
        """Recorded trajectories that have branches, by shard."""
        async with reader:
            return await asyncio.to_thread(_trees, home, offset)

    return router


def _trees(home: Home, offset: int) -> BranchTreeList:
    by_trajectory: dict[str, list[BranchRow]] = {}
    for row in home.lake.read(BRANCHES).to_pylist():
        by_trajectory.setdefault(row["trajectory_id"], []).append(BranchRow.model_validate(row))
    page = list(by_trajectory.values())[offset : offset + _TREES_PER_PAGE]
    end = offset + len(page)
    return BranchTreeList(
        trees=[_tree(home, rows) for rows in page],
        total=len(by_trajectory),
        next_offset=end if end < len(by_trajectory) else None,
    )


def _tree(home: Home, rows: Sequence[BranchRow]) -> BranchTree:
    """Of all branches of one trajectory."""
    root, shard = rows[0].trajectory_id, rows[0].shard
    own = pc.field("prompt_id") == rows[0].prompt_id
    texts = home.lake.read(PROMPTS, [shard], where=own).column("text").to_pylist()
    branches = {row.branch_id: row for row in rows}
    attempts = _attempts(home, shard, [root, *branches])
    return BranchTree(
        trajectory_id=root,
        shard=shard,
        request=next(iter(texts), ""),
        paths=[_path(id, branches.get(id), attempts[id]) for id in _below(root, rows)],
    )


def _attempts(home: Home, shard: str, ids: Sequence[str]) -> Mapping[str, list[AttemptRow]]:
    """Of a trajectory and its branches, in their order."""
    own, found = pc.field("trajectory_id").isin(ids), defaultdict[str, list[AttemptRow]](list)
    for table in (ATTEMPTS, BRANCH_ATTEMPTS):
        rows = home.lake.read(table, [shard], where=own)
        for row in rows.sort_by([(name, "ascending") for name in ATTEMPT_KEY]).to_pylist():
            found[row["trajectory_id"]].append(AttemptRow.model_validate(row))
    return found


def _path(id: str, row: BranchRow | None, attempts: list[AttemptRow]) -> BranchPath:
    """Of the recorded trajectory where there is no row."""
    if row is None:
        return BranchPath(id=id, parent_id=None, summary="as recorded", first=0, attempts=attempts)
    change = row.step_number, row.iteration
    before = sum((each.step_number, each.iteration) < change for each in attempts)
    return BranchPath(
        id=id, parent_id=row.parent_id, summary=row.summary, first=before, attempts=attempts
    )


def _below(parent: str, rows: Sequence[BranchRow]) -> Iterator[str]:
    """A trajectory or branch, and below it what leaves it."""
    yield parent
    for row in rows:
        if row.parent_id == parent:
            yield from _below(row.branch_id, rows)
