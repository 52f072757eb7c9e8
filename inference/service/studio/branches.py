"""Branches in the studio: recorded trajectories and what `interleave branch` made of them."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated

import pyarrow.compute as pc
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, BRANCH_ATTEMPTS, BRANCHES, AttemptRow, BranchRow
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
    paths = {root: _path(home, None, root, shard)}
    paths |= {row.branch_id: _path(home, row, row.branch_id, shard) for row in rows}
    own = pc.field("prompt_id") == rows[0].prompt_id
    texts = home.lake.read(PROMPTS, [shard], where=own).column("text").to_pylist()
    ordered = [paths[name] for name in _below(root, rows)]
    request = next(iter(texts), "")
    return BranchTree(trajectory_id=root, shard=shard, request=request, paths=ordered)


def _path(home: Home, row: BranchRow | None, id: str, shard: str) -> BranchPath:
    own = pc.field("trajectory_id") == id
    found = home.lake.read(BRANCH_ATTEMPTS if row else ATTEMPTS, [shard], where=own).to_pylist()
    attempts = sorted(
        map(AttemptRow.model_validate, found), key=lambda each: (each.step_number, each.iteration)
    )
    before = [
        each
        for each in attempts
        if row and (each.step_number, each.iteration) < (row.step_number, row.iteration)
    ]
    return BranchPath(
        id=id,
        parent_id=row.parent_id if row else None,
        summary=row.summary if row else "as recorded",
        first=len(before),
        attempts=attempts,
    )


def _below(parent: str, rows: Sequence[BranchRow]) -> Iterator[str]:
    """A trajectory or branch, and below it what leaves it."""
    yield parent
    for row in rows:
        if row.parent_id == parent:
            yield from _below(row.branch_id, rows)
