"""A lake of held-out requests, told and scored by the sketch world's teachers."""

import asyncio

from interleave_foundry.assets.prompts.bank import generate_bank
from interleave_foundry.assets.prompts.pack import load_pack
from interleave_foundry.assets.prompts.settings import BankSettings
from interleave_foundry.inference.roles import Roles
from interleave_foundry.inference.settings import Limits, LoopSettings
from interleave_foundry.inference.shard import plan_shard, run_shard, score_shard
from interleave_foundry.inference.sketch.critic import SketchCritic
from interleave_foundry.inference.sketch.generator import SketchGenerator
from interleave_foundry.inference.sketch.planner import SketchPlanner
from interleave_foundry.inference.sketch.scorer import SketchScorer
from interleave_foundry.schemas.bank import PROMPTS
from interleave_foundry.schemas.trajectories import ATTEMPTS, PLANS, SCORES, TRAJECTORIES
from interleave_foundry.warehouse import Home

TEACHERS = Roles(SketchPlanner(), SketchGenerator(), SketchCritic(), SketchScorer())
SHARD = "sketchbook-0000"


def tell(home: Home, count: int = 12) -> None:
    """Write `count` requests with their stories, every third of them of split train."""
    rows = generate_bank(load_pack("sketchbook"), BankSettings(), count)
    splits = ("heldout", "heldout_category", "train")
    prompts = [
        row.model_copy(update={"shard": SHARD, "split": splits[number % 3]})
        for number, row in enumerate(rows)
    ]
    asyncio.run(_tell(home, prompts))


async def _tell(home: Home, prompts: list) -> None:
    loop, limits, lake = LoopSettings(), Limits(), home.lake
    planned = await plan_shard(prompts, TEACHERS, home, loop, limits)
    told = await run_shard(prompts, planned.plans, TEACHERS, home, SHARD, loop, limits)
    scored = await score_shard(
        told.attempts, told.trajectories, planned.plans, TEACHERS, home, SHARD, limits
    )
    tables = {
        PROMPTS: prompts,
        PLANS: planned.plans,
        TRAJECTORIES: told.trajectories,
        ATTEMPTS: told.attempts,
        SCORES: scored.scores,
    }
    for table, rows in tables.items():
        lake.write(table, rows, SHARD)
