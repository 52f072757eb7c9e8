"""The engine: utilisation of the generator, own CPU time per attempt, and memory.

Models are simulated: they take a set time and answer with tiny images. The generator is a server
with four slots and a queue.
"""

import asyncio
import gc
import heapq
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from inference.calls.hashing import stable_hash
from inference.events import plan_rows
from inference.roles import Plan, PlanRequest, PlanStep, Roles, Score, Verdict
from inference.settings import Limits, LoopSettings
from inference.shard import ShardResult, run_shard
from schemas.prompts import PromptRow
from schemas.trajectories import PlanRow
from warehouse import EncodedImage, Home

GENERATOR_SECONDS, CRITIC_SECONDS, SLOTS = 0.050, 0.150, 4
QUEUED = 2 * SLOTS
STEPS = 4
BUSY_PROMPTS = 600
SEQUENTIAL_STEPS = 40
OVERHEAD_PROMPTS = 200
SHARD_PROMPTS = 100
MEMORY_PROMPTS = (1_000, 10_000)


_PNG = EncodedImage.white((1, 1)).data

MEANING = {
    "engine_generator_utilisation": (
        f"draws per second, relative to {SLOTS} slots of a 50 ms generator; critic 150 ms, "
        f"{SLOTS} concurrent draws",
        ">= 0.95",
    ),
    "engine_generator_utilisation_queued": (
        f"the same with {QUEUED} concurrent draws, so that the generator's queue is never empty",
        "",
    ),
    "engine_sequential_utilisation": ("the same of a sequential loop per slot", "0.25"),
    "engine_overhead_ms_per_attempt": (
        "CPU of engine, journal and image store per attempt, without drawing",
        "<= 3",
    ),
    "engine_resume_ms_per_attempt": ("CPU per attempt of rerunning a finished shard", ""),
    "engine_memory_mb_after_1000_prompts": ("resident memory after 10 shards", ""),
    "engine_memory_mb_after_10000_prompts": ("resident memory after 100 shards", "the same"),
}


class Server:
    """Slots that take a set time per call, with a queue."""

    def __init__(self, slots: int, seconds: float) -> None:
        self._seconds = seconds
        self._free_at = [0.0] * slots

    async def serve(self) -> None:
        now = time.monotonic()
        done = max(now, heapq.heappop(self._free_at)) + self._seconds
        heapq.heappush(self._free_at, done)
        await asyncio.sleep(done - now)


@dataclass(frozen=True)
class Simulated:
    """Every role in a set time; the critic rejects every third first attempt."""

    server: Server
    critic_seconds: float
    backend: str = "simulated"
    model: str = "1"

    async def plan(self, request: PlanRequest) -> Plan:
        return _plan(request.text)

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        await self.server.serve()
        # Decoders ignore bytes after the end of a PNG: different bytes, the same pixels.
        return EncodedImage(_PNG + f"{prompt} {seed}".encode())

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        await asyncio.sleep(self.critic_seconds)
        accepted = bool(prompt) or int(after.sha256[:8], 16) % 3 > 0
        return Verdict(accepted, "" if accepted else f"{instruction}, exactly", "compared")

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        return Score(8.0, 8.0, 8.0, 8.0)


def _instant() -> Simulated:
    return Simulated(Server(SLOTS, 0.0), 0.0)


def _timed() -> Simulated:
    return Simulated(Server(SLOTS, GENERATOR_SECONDS), CRITIC_SECONDS)


def generator_utilisation(concurrent: int) -> float:
    """Draws per second, relative to the generator's maximum."""
    limits = Limits(generator=concurrent, agents=_concurrent_verdicts())
    model = _timed()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        result = _run_in(Home(folder), model, "busy", BUSY_PROMPTS, limits)
        seconds = time.perf_counter() - start
    return len(result.attempts) * GENERATOR_SECONDS / SLOTS / seconds


def sequential_utilisation() -> float:
    """The same of the reference's loop: each slot draws, then waits for the verdict."""
    start = time.perf_counter()
    asyncio.run(_sequential(_timed()))
    return SEQUENTIAL_STEPS * GENERATOR_SECONDS / (time.perf_counter() - start)


def overhead_milliseconds() -> float:
    """CPU time of the engine per attempt, journal and image store included, drawing excluded."""
    with tempfile.TemporaryDirectory() as folder:
        return _cpu_milliseconds(Home(folder))


def resume_milliseconds() -> float:
    """CPU time per attempt of rerunning a finished shard."""
    with tempfile.TemporaryDirectory() as folder:
        _cpu_milliseconds(Home(folder))
        return _cpu_milliseconds(Home(folder))


def memory_megabytes() -> tuple[float, float]:
    """Resident memory after 1,000 and after 10,000 prompts, shard after shard."""
    first, last = MEMORY_PROMPTS
    sizes = {}
    with tempfile.TemporaryDirectory() as folder:
        for done in range(SHARD_PROMPTS, last + 1, SHARD_PROMPTS):
            shard = f"memory-{done:05d}"
            _run_in(Home(folder), _instant(), shard, SHARD_PROMPTS, Limits(), steps=1)
            sizes[done] = _resident_megabytes()
    return sizes[first], sizes[last]


def measure() -> dict[str, float]:
    """Every number by name."""
    memory_first, memory_last = memory_megabytes()
    return {
        "engine_generator_utilisation": generator_utilisation(SLOTS),
        "engine_generator_utilisation_queued": generator_utilisation(QUEUED),
        "engine_sequential_utilisation": sequential_utilisation(),
        "engine_overhead_ms_per_attempt": overhead_milliseconds(),
        "engine_resume_ms_per_attempt": resume_milliseconds(),
        "engine_memory_mb_after_1000_prompts": memory_first,
        "engine_memory_mb_after_10000_prompts": memory_last,
    }


def _cpu_milliseconds(home: Home) -> float:
    start = time.process_time()
    result = _run_in(home, _instant(), "overhead", OVERHEAD_PROMPTS, Limits())
    return 1000 * (time.process_time() - start) / len(result.attempts)


async def _sequential(model: Simulated) -> None:
    """The loop of one slot."""
    image = None
    for step in range(SEQUENTIAL_STEPS):
        following = await model.generate(f"step {step}", (), step)
        await model.judge(image, following, f"step {step}", "")
        image = following


def _concurrent_verdicts() -> int:
    """Concurrent verdicts when every slot is always busy, with some to spare."""
    return round(SLOTS * CRITIC_SECONDS / GENERATOR_SECONDS) + SLOTS


def _run_in(
    home: Home, model: Simulated, shard: str, count: int, limits: Limits, steps: int = STEPS
) -> ShardResult:
    roles = Roles(model, model, model, model)
    prompts = [_prompt(shard, number) for number in range(count)]
    plans = [row for prompt in prompts for row in _plan_rows(prompt, steps)]
    return asyncio.run(run_shard(prompts, plans, roles, home, shard, LoopSettings(), limits))


def _prompt(shard: str, number: int) -> PromptRow:
    name = f"{shard}-{number}"
    return PromptRow(
        prompt_id=stable_hash(name),
        pack="bench",
        category="bench",
        subcategory="bench",
        template_id="bench",
        text=f"Show {name} step by step",
        terms=[],
        suffix=None,
        input_images=[],
        shard=shard,
        split="train",
    )


def _plan_rows(prompt: PromptRow, steps: int) -> list[PlanRow]:
    return plan_rows(prompt, _plan(prompt.text, steps), "simulated/1")


def _plan(text: str, steps: int = STEPS) -> Plan:
    numbers = range(1, steps + 1)
    return Plan(tuple(PlanStep(n, f"step {n}", text, f"{text}, part {n}") for n in numbers))


def _resident_megabytes() -> float:
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20
