"""A lake of held-out requests, run and scored with the sketch world's agents."""

import asyncio

from assets.prompts.bank import generate_bank
from assets.prompts.pack_loader import load_pack
from assets.prompts.settings import BankSettings
from inference.backends.sketch.backend import (
    SketchCritic,
    SketchGenerator,
    SketchPlanner,
    SketchScorer,
)
from inference.roles import Roles
from inference.settings import Limits, LoopSettings
from inference.shard import plan_shard, run_shard, score_shard
from inference.sketch_world.settings import SketchSettings
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, PLANS, SCORES, TRAJECTORIES
from warehouse import Home

SMALL = SketchSettings(picture_size=96)
SKETCH_ROLES = Roles(SketchPlanner(), SketchGenerator(SMALL), SketchCritic(), SketchScorer())
SHARD = "sketchbook-0000"


def write_sample_lake(home: Home, count: int, roles: Roles = SKETCH_ROLES) -> None:
    """Write `count` requests with their trajectories, every third of them of split train."""
    rows = generate_bank(load_pack("sketchbook"), BankSettings(), count)
    splits = ("heldout", "heldout_category", "train")
    prompts = [
        row.model_copy(update={"shard": SHARD, "split": splits[number % 3]})
        for number, row in enumerate(rows)
    ]
    asyncio.run(_run(home, prompts, roles))


async def _run(home: Home, prompts: list, roles: Roles) -> None:
    loop, limits, lake = LoopSettings(), Limits(), home.lake
    planned = await plan_shard(prompts, roles, home, loop, limits)
    run = await run_shard(prompts, planned.plans, roles, home, SHARD, loop, limits)
    scored = await score_shard(
        run.attempts, run.trajectories, planned.plans, roles, home, SHARD, limits
    )
    tables = {
        PROMPTS: prompts,
        PLANS: planned.plans,
        TRAJECTORIES: run.trajectories,
        ATTEMPTS: run.attempts,
        SCORES: scored.scores,
    }
    for table, rows in tables.items():
        lake.write(table, rows, SHARD)
