"""What `interleave run` costs a shard, and what it costs when nothing is to be done.

Shards have one prompt, so that nearly all of their time is that of Dagster, the lake and the
checks. All but a few of a home's shards are synthetic; the few are run, to see whether their time
depends on how many there are.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from assets.core.foundry import FoundryResource
from assets.core.node import NODES, lineage
from assets.prompts.assets import shard_names
from dagster_project.instance import open_instance
from dagster_project.run import run_lineage
from dagster_project.stages import stages_of
from warehouse.views import refresh_views

from .many_shards import SHARD_NODES, report_materialization, synthesize_shards, write_profile

SIZES, NEW, MOST = (10, 100, 1_000), 4, 10_000
MEANING = {
    **{
        f"lineage_shard_seconds_{size}": (
            f"plans, trajectories, scores and checks of a shard of one prompt, beside {size:,}",
            "",
        )
        for size in SIZES
    },
    **{
        f"lineage_shards_a_minute_{size}": (f"the same, by one process, beside {size:,}", "")
        for size in SIZES
    },
    "lineage_noop_seconds": (f"`interleave run` with nothing to do at {MOST:,} shards", "<= 5"),
    "lineage_noop_cpu_seconds": ("CPU time of the same, all processes", "<= 5"),
    "lineage_fingerprint_seconds": (f"fingerprint of `steps` at {MOST:,} shards", "<= 1"),
}
_BANK = ("taxonomy", "vocabulary_expansion", "vocabulary", "templates", "prompts")


def measure() -> dict[str, float]:
    """Grow a home in a temporary folder, shard by shard."""
    values: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="interleave-bench-") as folder:
        profile = write_profile(Path(folder))
        foundry = FoundryResource(profile=profile, root=str(Path(folder, "home")))
        done = 0
        with open_instance(foundry.home) as instance:
            for size in SIZES:
                _fill(foundry, instance, done, size, size + NEW)
                seconds = _run_new(foundry, instance, size + NEW) / NEW
                values[f"lineage_shard_seconds_{size}"] = seconds
                values[f"lineage_shards_a_minute_{size}"] = 60 / seconds
                done = size + NEW
            _fill(foundry, instance, done, MOST, MOST)
            for node in (aggregates := _aggregates(foundry)):
                report_materialization(foundry, instance, node)
            started = time.perf_counter()
            NODES["steps"].fingerprint(foundry, instance, None)
            values["lineage_fingerprint_seconds"] = time.perf_counter() - started
        refresh_views(foundry.home)
        noop = _noop(foundry, aggregates)
        values["lineage_noop_seconds"], values["lineage_noop_cpu_seconds"] = noop
    return values


def _aggregates(foundry: FoundryResource) -> list[str]:
    nodes = [node for node in lineage() if node.automatic and node.is_enabled(foundry.settings)]
    return [node.name for node in stages_of(nodes).aggregates]


def _fill(
    foundry: FoundryResource, instance: dg.DagsterInstance, done: int, filled: int, bank: int
) -> None:
    """Make a bank of so many shards, and synthesize those from `done` to `filled`."""
    run_lineage(foundry, instance, bank, _BANK)
    names = shard_names(foundry.settings.pack, filled)
    synthesize_shards(foundry, instance, names[done:])


def _run_new(foundry: FoundryResource, instance: dg.DagsterInstance, shards: int) -> float:
    started = time.perf_counter()
    done = run_lineage(foundry, instance, shards, SHARD_NODES)
    assert len(done.materialized) == NEW * len(SHARD_NODES)
    return time.perf_counter() - started


def _noop(foundry: FoundryResource, aggregates: Sequence[str]) -> tuple[float, float]:
    """Least seconds and least CPU seconds of two runs of the command; the first one reads new
    events of Dagster's history."""
    select = ",".join((*_BANK, *SHARD_NODES, *aggregates))
    command = [sys.executable, "-m", "dagster_project.cli.app", "run"]
    command += ["--profile", foundry.profile, "--home", foundry.root, "--select", select]
    # Python's compiled modules are there after the first run, as after an installation.
    left_out = ("DAGSTER_HOME", "PYTHONDONTWRITEBYTECODE")
    seconds, cpu_seconds = [], []
    for _ in range(2):
        started, cpu = time.perf_counter(), _children_cpu()
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            env={name: text for name, text in os.environ.items() if name not in left_out},
        )
        assert "\n0 materialized" in done.stdout, done.stdout
        seconds.append(time.perf_counter() - started)
        cpu_seconds.append(_children_cpu() - cpu)
    return min(seconds), min(cpu_seconds)


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
