"""A shard killed with SIGKILL, again and again, ends as if nothing had happened.

The engine runs in a process of its own, on real journals and a real image store. Its backends
count their calls in a file that survives them: one O_APPEND write as a call starts, one as its
answer is given.
"""

import asyncio
import multiprocessing
import os
import random
import time
from pathlib import Path

import pytest

from inference.engine.calls import request_hash
from inference.engine.hashing import stable_hash
from inference.roles import Roles, Score, Verdict
from inference.settings import Limits, LoopSettings
from inference.shard import ShardResult, run_shard
from tests.inference.scripted_world import SHARD, picture, planned, prompt_row
from warehouse import Home

KILLS = 20
PROMPTS = 100
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["inference.shard", "tests.inference.test_resume"])


class Counted:
    """Plays generator, critic and scorer; answers depend on the request alone."""

    backend, model = "counted", "1"

    def __init__(self, log: Path) -> None:
        self._log = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    async def generate(self, prompt, images, seed):
        hashes = [image.sha256 for image in images]
        await self._work("generator", {"prompt": prompt, "images": hashes, "seed": seed})
        return picture(prompt, hashes, seed)

    async def judge(self, before, after, instruction, prompt):
        images = [before and before.sha256, after.sha256]
        content = {"images": images, "instruction": instruction, "prompt": prompt}
        await self._work("critic", content)
        accepted = int(stable_hash(after.sha256), 16) % 3 == 0
        return Verdict(accepted, "" if accepted else f"{instruction}, {after.sha256[:6]}", "seen")

    async def score(self, before, after, instruction):
        images = [before and before.sha256, after.sha256]
        await self._work("scorer", {"images": images, "instruction": instruction})
        return Score(int(after.sha256[:2], 16) / 25.6, 9.0, 8.0, 7.0)

    async def _work(self, role, content):
        name = request_hash(role, self, content)
        os.write(self._log, f"{name}\n".encode())
        await asyncio.sleep(int(name[:2], 16) / 12_800)  # up to 20 ms


def tell(folder: Path, log: Path) -> ShardResult:
    prompts = [prompt_row(f"p{n}") for n in range(PROMPTS)]
    plans = [
        row for p in prompts for row in planned(p, f"{p.prompt_id} a", None, f"{p.prompt_id} b")
    ]
    actor = Counted(log)
    backends = Roles(None, actor, actor, actor)
    loop, limits = LoopSettings(t_max=4, on_exhausted="best"), Limits()
    return asyncio.run(run_shard(prompts, plans, backends, Home(folder), SHARD, loop, limits))


def called(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def durable(home: Home) -> set[str]:
    return {line["call"]["request_hash"] for line in home.journal("trajectories", SHARD).records()}


def comparable(result: ShardResult) -> tuple:
    volatile = {"generator_seconds", "critic_seconds"}
    return result.trajectories, [row.model_dump(exclude=volatile) for row in result.attempts]


def killed_at_a_random_moment(folder: Path, log: Path, chance: random.Random) -> bool:
    """Start the engine and kill it; False when it was done before that."""
    before, calls = len(called(log)), chance.randint(0, 30)
    process = PROCESSES.Process(target=tell, args=(folder, log))
    process.start()
    while process.is_alive() and len(called(log)) < before + calls:
        time.sleep(0.001)
    time.sleep(chance.random() * 0.01)
    process.kill()
    process.join()
    return process.exitcode != 0


@pytest.mark.slow
def test_after_20_kills_nothing_is_lost_and_no_finished_call_is_made_again(tmp_path):
    home, log, chance = Home(tmp_path / "killed"), tmp_path / "calls", random.Random(7)
    known: list[tuple[int, set[str]]] = []
    for _ in range(KILLS):
        killed = killed_at_a_random_moment(tmp_path / "killed", log, chance)
        assert killed, "the shard was done before it was killed often enough"
        known.append((len(called(log)), durable(home)))

    result = tell(tmp_path / "killed", log)
    undisturbed = tell(tmp_path / "undisturbed", tmp_path / "undisturbed-calls")

    assert comparable(result) == comparable(undisturbed)
    for count, finished in known:
        assert finished.isdisjoint(called(log)[count:])
    requests = set(called(log))
    assert requests == set(called(tmp_path / "undisturbed-calls"))
    assert len(result.calls) == len(requests)  # one ledger row a request, however often killed
    assert all(home.images.exists(attempt.image) for attempt in result.attempts)
    in_flight = Limits().generator + Limits().agents
    assert len(called(log)) - len(requests) <= KILLS * in_flight
    assert len(known[-1][1]) > 0
