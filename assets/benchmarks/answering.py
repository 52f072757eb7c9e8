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
from .benchmark import AnswerStep, Benchmark, Item
from .settings import BenchmarksSettings

ASSET = "benchmark_answers"

Rows = Mapping[Table, Sequence[Any]]  # of one run of the loop
_Answered = tuple[Item, str, Sequence[AnswerStep]]


@dataclass(frozen=True)
class Shard:
    """Items of a benchmark that are answered together, in a partition of that name."""

    benchmark: Benchmark
    system: str
    name: str
    items: Sequence[Item]


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
    pool = WorkerPool(shard.name, profile.limits.in_flight, profile.limits.failure_share, progress)
    async with GenerationRunner(home, profile.limits, collected) as runner:
        await asyncio.to_thread(check_conditioning, profile.loop, roles.generator)
        run = _ItemRun(profile.loop, shard, seed, runner, roles)
        answered, quarantine = await pool.map(run, shard.items)
    pending = PendingPartition(shard.name)
    for rows in collected:
        pending.add(rows)
    records = pending.rows()
    for table in records.keys() - {GENERATIONS}:
        home.lake.write(table, records[table], pending.partition)
    runs = {rows[GENERATIONS][0].generation_id: rows for rows in collected}
    answers = [
        _row(shard, item, answer, **_run_columns(runs[name])) for item, name, answer in answered
    ]
    return Answers(answers, records[MODEL_CALLS], quarantine)


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
            for step in answer:
                if step.image:
                    home.images.put(step.image)
            found[item_id] = _row(shard, items[item_id], answer, status="imported")
    if not found:
        raise FoundryError(f"{source}: has no answer to an item of {shard.benchmark.name}")
    return Answers(
        [found.get(name) or _row(shard, item, (), status="missing") for name, item in items.items()]
    )


@dataclass(frozen=True)
class _ItemRun:
    """Runs the loop on one item."""

    loop: LoopSettings
    shard: Shard
    seed: int
    runner: GenerationRunner
    roles: Roles

    async def __call__(self, item: Item) -> _Answered | QuarantineRow:
        """The item with the id of its generation and the answer."""
        request = await asyncio.to_thread(self._request, item)
        state = TrajectoryView(request.text, request.images)
        async with aclosing(self.runner.run(request, self.roles)) as events:
            async for event in events:
                state.note(event)
        if isinstance(state.ending, TrajectoryFailed) and not state.ending.refused:
            ids = {"prompt_id": item.item_id, "shard": self.shard.name}
            return QuarantineRow(**ids, stage=ASSET, reason=state.ending.reason)
        steps = [step for step in state.steps if step.finished]
        answer = [AnswerStep(s.text, s.chosen.image if s.chosen else None) for s in steps]
        return item, request.generation_id, answer

    def _request(self, item: Item) -> GenerationRequest:
        """Its seed follows from the item, so that equal texts of two items differ."""
        name = self.shard.benchmark.name
        seed = int(stable_hash("benchmark", self.seed, name, item.item_id), 16) % 2**31
        return GenerationRequest(
            item.text,
            tuple(read_image(path) for path in item.image_files),
            GenerationOptions.model_validate(self.loop.model_dump() | {"seed": seed}),
            generation_id=stable_hash("benchmark", self.shard.system, name, item.item_id),
        )


def _row(shard: Shard, item: Item, answer: Sequence[AnswerStep], **columns: Any) -> Any:
    empty = dict.fromkeys(("generation_id", "seed", "cost_usd", "seconds"))
    return BenchmarkAnswerRow(
        benchmark=shard.benchmark.name,
        system=shard.system,
        shard=shard.name,
        item_id=item.item_id,
        group=item.group,
        request=item.text,
        texts=[step.text for step in answer],
        images=[step.image.sha256 if step.image else None for step in answer],
        **{"input_images": [], **empty, **columns},
    )
