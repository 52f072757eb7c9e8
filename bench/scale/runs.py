"""Real runs of `interleave run` on the sketch world, observed: wall time, CPU, memory.

With `latency`, planner, critic and scorer are at a local provider that takes so long for an answer,
and whose own CPU is not counted. CPU time is that of the command and all its processes; unlike wall
time it hardly depends on what else the machine does.
"""

import os
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from tests.inference.backends.providers.faulty_provider import KEY, FaultSchedule, provider

INTERLEAVE = Path(".venv/bin/interleave").absolute()
BANK = ("taxonomy", "vocabulary_expansion", "vocabulary", "templates", "prompts")
SHARDED = ("plans", "trajectories", "scores")
AGENT_SLOTS = 16
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Observed:
    """What a command took."""

    wall_seconds: float
    cpu_seconds: float
    memory_gb: float  # of its largest process, at its peak (VmHWM)


@dataclass(frozen=True)
class World:
    """A profile in a file, and the home that it fills."""

    folder: Path
    shard_size: int
    shards: int

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def profile(self) -> Path:
        return self.folder / "profile.yaml"

    def prepare(self) -> None:
        """The prompts, which are not part of what is measured."""
        self._run(BANK, 1)

    def run(self, jobs: int) -> Observed:
        """Plans, trajectories and scores of all shards, `jobs` at once."""
        return self._run(SHARDED, jobs)

    def _run(self, assets: tuple[str, ...], jobs: int) -> Observed:
        options = ("--profile", self.profile, "--home", self.home, "--size", "all")
        select = ("--select", ",".join(assets), "--jobs", str(jobs))
        return observe([str(each) for each in (INTERLEAVE, "run", *options, *select)])


@contextmanager
def world(folder: Path, shards: int, shard_size: int, latency: float = 0.0) -> Iterator[World]:
    """A fresh home with prompts; its provider answers until the block ends."""
    folder.mkdir(parents=True)
    found = World(folder, shard_size, shards)
    schedule = FaultSchedule(latency=latency)
    with provider(schedule) as server:
        profile = _profile(shards, shard_size, f"{server.url}/v1" if latency else None)
        found.profile.write_text(yaml.safe_dump(profile), "utf-8")
        found.prepare()
        yield found


def _profile(shards: int, shard_size: int, url: str | None) -> dict[str, object]:
    remote = ("planner", "critic", "scorer") if url else ()
    names = ("planner", "generator", "critic", "scorer")
    profile: dict[str, object] = {
        "name": "scale",
        "description": "Measured by bench/scale",
        "roles": {role: "openai" if role in remote else "sketch" for role in names},
        "pack": "sketchbook",
        "bank": {"shard_size": shard_size},
        "sizes": {"all": shards},
        "limits": {"agents": AGENT_SLOTS},
    }
    if url:
        endpoint = {"url": url, "key": "BENCH_KEY", "concurrency": AGENT_SLOTS}
        agents: dict[str, object] = {role: {"model": "m"} for role in remote}
        profile["openai"] = {"endpoints": [endpoint], **agents}
    return profile


def observe(command: list[str]) -> Observed:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed; the message is the end of its output.
    """
    before, started = _children_cpu(), time.perf_counter()
    environment = {**os.environ, "BENCH_KEY": KEY, "NO_COLOR": "1"}
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    peak = _Peak(child.pid)
    peak.start()
    output, _ = child.communicate()
    wall = time.perf_counter() - started
    peak.join()
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {output[-2000:]}")
    return Observed(wall, _children_cpu() - before, peak.gigabytes)


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class _Peak(threading.Thread):
    """The largest VmHWM of a process and its descendants, polled while it lives."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(pid)
        self.gigabytes = 0.0

    def run(self) -> None:
        while self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE:
            try:
                family = [self._process, *self._process.children(recursive=True)]
                self.gigabytes = max([self.gigabytes, *map(_peak_gb, family)])
            except psutil.NoSuchProcess:
                return
            time.sleep(_POLL_SECONDS)


def _peak_gb(process: psutil.Process) -> float:
    try:
        status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
    except OSError:  # it has ended
        return 0.0
    kilobytes = next((line.split()[1] for line in status.splitlines() if "VmHWM" in line), "0")
    return int(kilobytes) / 2**20
