"""A shard that is killed with SIGKILL many times has the same result as an undisturbed one.

The engine runs in its own process, on real journals and a real image store. Its backends log each
call to a file, with one O_APPEND write as it starts.
"""

import asyncio
import multiprocessing
import os
import random
import time
from pathlib import Path

import pytest

from inference.calls.ask import request_hash
from inference.calls.hashing import stable_hash
from inference.roles import Roles, Score, Verdict
from inference.settings import Limits, LoopSettings
from inference.shard import ShardResult, run_shard
from tests.inference.scripted_world import SHARD, shard_inputs, tiny_image
from warehouse import Home

KILLS = 20
PROMPTS = 100
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["inference.shard", "tests.inference.test_resume"])


class LoggedBackend:
    """Generator, critic and scorer; answers depend on the request alone."""

    backend, model = "counted", "1"

    def __init__(self, log: Path) -> None:
        self._log = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    async def generate(self, prompt, images, seed):
        hashes = [image.sha256 for image in images]
        await self._work("generator", {"prompt": prompt, "images": hashes, "seed": seed})
        return tiny_image(prompt, hashes, seed)

    async def judge(self, before, after, instruction, prompt):
        images = [before and before.sha256, after.sha256]
        content = {"images": images, "instruction": instruction, "prompt": prompt}
        await self._work("critic", content)
        accepted = int(stable_hash(after.sha256), 16) % 3 == 0
        return Verdict(
            accepted, "" if accepted else f"{instruction}, {after.sha256[:6]}", "compared"
        )

    async def score(self, before, after, instruction):
        images = [before and before.sha256, after.sha256]
        await self._work("scorer", {"images": images, "instruction": instruction})
        return Score(int(after.sha256[:2], 16) / 25.6, 9.0, 8.0, 7.0)

    async def _work(self, role, content):
        name = request_hash(role, self, content)
        os.write(self._log, f"{name}\n".encode())
        await asyncio.sleep(int(name[:2], 16) / 12_800)  # up to 20 ms


def run(folder: Path, log: Path) -> ShardResult:
    prompts, plans = shard_inputs([f"p{n}" for n in range(PROMPTS)], "a", None, "b")
    backend = LoggedBackend(log)
    backends = Roles(None, backend, backend, backend)
    loop, limits = LoopSettings(t_max=4, on_exhausted="best"), Limits()
    return asyncio.run(run_shard(prompts, plans, backends, Home(folder), SHARD, loop, limits))


def calls_of(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def journaled_requests(home: Home) -> set[str]:
    return {line["call"]["request_hash"] for line in home.journal("trajectories", SHARD).records()}


def comparable(result: ShardResult) -> tuple:
    volatile = {"generator_seconds", "critic_seconds"}
    return result.trajectories, [row.model_dump(exclude=volatile) for row in result.attempts]


def run_and_kill(folder: Path, log: Path, generator: random.Random) -> bool:
    """Start the engine and kill it at a random time; False when it finished before that."""
    before, calls = len(calls_of(log)), generator.randint(0, 30)
    process = PROCESSES.Process(target=run, args=(folder, log))
    process.start()
    while process.is_alive() and len(calls_of(log)) < before + calls:
        time.sleep(0.001)
    time.sleep(generator.random() * 0.01)
    process.kill()
    process.join()
    return process.exitcode != 0


@pytest.mark.slow
@pytest.mark.long
def test_after_20_kills_the_result_is_the_same_and_no_finished_call_is_repeated(tmp_path):
    home, log, generator = Home(tmp_path / "killed"), tmp_path / "calls", random.Random(7)
    known: list[tuple[int, set[str]]] = []
    for _ in range(KILLS):
        killed = run_and_kill(tmp_path / "killed", log, generator)
        assert killed, "the shard was done before it was killed often enough"
        known.append((len(calls_of(log)), journaled_requests(home)))

    result = run(tmp_path / "killed", log)
    undisturbed = run(tmp_path / "undisturbed", tmp_path / "undisturbed-calls")

    assert comparable(result) == comparable(undisturbed)
    for count, finished in known:
        assert finished.isdisjoint(calls_of(log)[count:])
    requests = set(calls_of(log))
    assert requests == set(calls_of(tmp_path / "undisturbed-calls"))
    assert len(result.calls) == len(requests)  # one ledger row a request, however often killed
    assert all(home.images.exists(attempt.image) for attempt in result.attempts)
    in_flight = Limits().generator + Limits().agents
    assert len(calls_of(log)) - len(requests) <= KILLS * in_flight
    assert len(known[-1][1]) > 0
