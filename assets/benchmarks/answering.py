"""A system's answers to the items of a benchmark: by the loop, or imported from a folder."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.calls.hashing import stable_hash
from inference.calls.progress import Progress
from inference.calls.worker_pool import WorkerPool
from inference.events import TrajectoryFailed
from inference.generation.agent_resolver import AgentResolver
from inference.generation.files import read_image
from inference.generation.generation_sink import PendingPartition
from inference.generation.requests import GenerationOptions, GenerationRequest
from inference.generation.runner import GenerationRunner
from inference.generation.trajectory_view import TrajectoryView
from inference.loop import check_conditioning
from inference.roles import Roles
from inference.settings import LoopSettings
from schemas import FoundryError, Table
from schemas.benchmarks import BenchmarkAnswerRow
from schemas.generations import GENERATIONS
from schemas.trajectories import MODEL_CALLS, QuarantineRow
from warehouse import Home

from ..core.profile import Profile
from .benchmark import AnswerStep, Benchmark, Item, pictures
from .settings import BenchmarksSettings

ASSET = "benchmark_answers"

Rows = Mapping[Table, Sequence[Any]]  # of one run of the loop


@dataclass(frozen=True)
class Shard:
    """Items of a benchmark that a system answers, and a judge judges, together.

    Args:
        answers, judgements, results: its partitions of these tables; `results`: of the whole run.
    """

    benchmark: Benchmark
    system: str
    items: Sequence[Item]
    answers: str
    judgements: str = ""
    results: str = ""


@dataclass(frozen=True)
class Answers:
    """Rows of a shard.

    Args:
        calls: of the runs of the loop behind them.
        quarantine: items to which a model gave no answer.
    """

    rows: list[BenchmarkAnswerRow]
    calls: list[Any] = field(default_factory=list)
    quarantine: list[QuarantineRow] = field(default_factory=list)


async def answer_items(
    home: Home, profile: Profile, shard: Shard, settings: BenchmarksSettings, progress: Progress
) -> Answers:
    """Answer the items of a shard by the profile's system, or the promoted agents.

    Raises:
        FoundryError: as `answer_with`, or there are no such agents.
    """
    async with AgentResolver(profile, home, settings.agents) as resolver:
        roles = await resolver.resolve()
        return await answer_with(home, profile, roles, shard, settings.seed, progress)


async def answer_with(
    home: Home, profile: Profile, roles: Roles, shard: Shard, seed: int, progress: Progress
) -> Answers:
    """Answer the items of a shard; journaled calls are not made again.

    Plans, attempts and calls of the runs are written to the lake, not as users' requests, which
    may be trained on.

    Raises:
        FoundryError: an item's picture cannot be read, too many items have no answer
            (`limits.failure_share`), or the lake cannot be written.
    """
    collected: list[Rows] = []
    limits = profile.limits
    pool = WorkerPool(shard.answers, limits.in_flight, limits.failure_share, progress)
    async with GenerationRunner(home, limits, collected) as runner:
        await asyncio.to_thread(check_conditioning, profile.loop, roles.generator)

        async def answer(item: Item) -> tuple[Item, str, list[AnswerStep]] | QuarantineRow:
            request = await asyncio.to_thread(_request, shard, item, profile.loop, seed)
            state = await _run(runner, roles, request)
            if isinstance(state.ending, TrajectoryFailed) and not state.ending.refused:
                ids = {"prompt_id": item.item_id, "shard": shard.answers}
                return QuarantineRow(**ids, stage=ASSET, reason=state.ending.reason)
            steps = [step for step in state.steps if step.finished]
            images = [step.chosen.image if step.chosen else None for step in steps]
            answered = [AnswerStep(s.text, image) for s, image in zip(steps, images, strict=True)]
            return item, request.generation_id, answered

        answers, quarantine = await pool.map(answer, shard.items)
    pending = PendingPartition(shard.answers)
    for rows in collected:
        pending.add(rows)
    records = pending.rows()
    for table in records.keys() - {GENERATIONS}:
        home.lake.write(table, records[table], pending.partition)
    runs = {rows[GENERATIONS][0].generation_id: rows for rows in collected}
    found = [
        _row(shard, item, answer, **_run_columns(runs[name])) for item, name, answer in answers
    ]
    return Answers(found, records[MODEL_CALLS], quarantine)


async def _run(
    runner: GenerationRunner, roles: Roles, request: GenerationRequest
) -> TrajectoryView:
    state = TrajectoryView(request.text, request.images)
    async with aclosing(runner.run(request, roles)) as events:
        async for event in events:
            state.note(event)
    return state


def _request(shard: Shard, item: Item, loop: LoopSettings, seed: int) -> GenerationRequest:
    """Its seed follows from the item, so that equal texts of two items differ."""
    name = shard.benchmark.name
    seed = int(stable_hash("benchmark", seed, name, item.item_id), 16) % 2**31
    return GenerationRequest(
        item.text,
        tuple(read_image(path) for path in item.image_files),
        GenerationOptions.model_validate(loop.model_dump() | {"seed": seed}),
        generation_id=stable_hash("benchmark", shard.system, name, item.item_id),
    )


def _run_columns(rows: Rows) -> dict[str, Any]:
    generation = rows[GENERATIONS][0]
    columns = {"status", "input_images", "generation_id", "seed", "cost_usd"}
    seconds = sum(call.seconds for call in rows[MODEL_CALLS])
    return generation.model_dump(include=columns) | {"seconds": seconds}


def import_answers(home: Home, shard: Shard, source: Path) -> Answers:
    """Another system's answers in the benchmark's official layout; items without one are missing.

    Raises:
        FoundryError: a file or picture is damaged, or there is no answer to any of the items.
    """
    items = {item.item_id: item for item in shard.items}
    found: dict[str, BenchmarkAnswerRow] = {}
    for item_id, answer in shard.benchmark.read_answers(source):
        if item_id in items:
            for image in pictures(answer):
                home.images.put(image)
            found[item_id] = _row(shard, items[item_id], answer, status="imported")
    if not found:
        raise FoundryError(f"{source}: has no answer to an item of {shard.benchmark.name}")
    return Answers(
        [found.get(name) or _row(shard, item, (), status="missing") for name, item in items.items()]
    )


def _row(shard: Shard, item: Item, answer: Sequence[AnswerStep], **columns: Any) -> Any:
    empty = dict.fromkeys(("generation_id", "seed", "cost_usd", "seconds"))
    return BenchmarkAnswerRow(
        benchmark=shard.benchmark.name,
        system=shard.system,
        shard=shard.answers,
        item_id=item.item_id,
        group=item.group,
        request=item.text,
        texts=[step.text for step in answer],
        images=[step.image.sha256 if step.image else None for step in answer],
        **{"input_images": [], **empty, **columns},
    )
