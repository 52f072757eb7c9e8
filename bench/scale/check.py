"""Compares predictions with real runs: `python -m bench.scale.check`.

Costs are measured with one shard (and the same prompts in four), then 1, 4 and 16 shards are
predicted and run. With `--latency` planner, critic and scorer are at a local provider that takes so
long. Repeat it on an idle machine before you trust its wall times; CPU times depend less on that.
"""

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from schemas import FoundryError
from warehouse import Home

from .calibrate import PROMPTS, PROVIDER, Filled, attempts_per_prompt, calibrate, fill
from .inputs import COSTS, Costs, Hardware, ModelServer, Role, load_costs
from .report import number
from .runs import AGENT_SLOTS
from .simulation import Factory

ROLES: tuple[Role, ...] = ("planner", "generator", "critic", "scorer")


@dataclass(frozen=True)
class Comparison:
    """A size: what was predicted, and what a real run took."""

    shards: int
    cpu: tuple[float, float]  # seconds; predicted, real
    wall: tuple[float, float]  # seconds
    memory: tuple[float, float]  # GB, of the largest process
    attempts: tuple[float, float]
    files: tuple[float, float]  # of tables, journals and images


def error(pair: tuple[float, float]) -> float:
    """Of a prediction, relative to the real value."""
    predicted, real = pair
    return predicted / real - 1


def check(
    folder: Path, sizes: list[int], shard_size: int, jobs: int, latency: float
) -> list[Comparison]:
    costs = write_costs(folder, calibrate(folder, shard_size, latency))
    found = []
    for shards in sizes:
        filled = fill(folder / f"check-{shards}", shards, shard_size, jobs, latency)
        found.append(compare(costs, filled, jobs, latency > 0))
    return found


def write_costs(folder: Path, measured: dict[str, Any]) -> Costs:
    path = folder / "measured.yaml"
    path.write_text(json.dumps(measured), "utf-8")  # JSON is YAML
    return load_costs(COSTS, path)


def compare(costs: Costs, filled: Filled, jobs: int, remote: bool) -> Comparison:
    shards, shard_size = filled.world.shards, filled.world.shard_size
    engine, home = costs.engine, Home(filled.world.home)
    hardware = hardware_of(min(jobs, shards), remote)
    workers = hardware.runs if hardware.runs > 1 else 0
    seen = Factory(costs, hardware, [shard_size] * shards).run()
    cpu = engine.process_cpu_seconds.value + workers * engine.worker_cpu_seconds.value
    cpu += shards * engine.run_cpu_seconds.value
    for role in ROLES:
        call = costs.models[hardware.roles[role]].roles[role]
        cpu += seen.calls[role] * call.cpu_seconds.value
    start = engine.process_cpu_seconds.value + (engine.worker_cpu_seconds.value if workers else 0)
    attempts = seen.calls["generator"]
    files = shards * (engine.table_files.value + engine.journals.value)
    memory = engine.memory_gb.value
    return Comparison(
        shards=shards,
        cpu=(cpu, filled.run.cpu_seconds),
        wall=(start + seen.seconds, filled.run.wall_seconds),
        memory=(memory, filled.run.memory_gb),
        attempts=(attempts, sum(attempts_per_prompt(home))),
        files=(files + attempts * costs.workloads["sketch"].images.value, _files(home.local)),
    )


def hardware_of(runs: int, remote: bool) -> Hardware:
    models = {role: PROVIDER if remote and role != "generator" else "sketch" for role in ROLES}
    return Hardware(
        description="this machine",
        cores=os.cpu_count() or 1,
        memory_gb=1,
        runs=runs,
        workload="sketch",
        agent_slots=AGENT_SLOTS,
        roles=models,
        servers={PROVIDER: ModelServer()} if remote else {},
    )


def _files(root: Path) -> int:
    """Files of the shards: tables, journals, images."""
    tables = (root / "lake").glob("*/*sketchbook-*/*.parquet")
    journals = (root / "journals").rglob("*.jsonl")
    return sum(1 for _ in (*tables, *journals, *(root / "images").rglob("*.png")))


def print_comparisons(console: Console, found: list[Comparison]) -> None:
    table = Table("shards", "what", "predicted", "real", "error", box=None, header_style="bold")
    for each in found:
        for name, pair in list(vars(each).items())[1:]:
            table.add_row(str(each.shards), name, *map(number, pair), f"{error(pair):+.0%}")
    console.print(table)


def main(
    sizes: Annotated[str, typer.Option(help="Numbers of shards, comma-separated.")] = "1,4,16",
    shard_size: Annotated[int, typer.Option(min=4, help="Prompts in a shard.")] = PROMPTS,
    jobs: Annotated[int, typer.Option(min=1, help="Shards at once.")] = os.cpu_count() or 1,
    latency: Annotated[float, typer.Option(min=0, help="Seconds; 0: models in process.")] = 0.0,
    out: Annotated[Path | None, typer.Option(help="Also write the numbers as JSON.")] = None,
) -> None:
    """Measure with one shard, predict the sizes, run them, and print the errors."""
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="interleave-scale-"))
    try:
        found = check(folder, [int(size) for size in sizes.split(",")], shard_size, jobs, latency)
    except (FoundryError, ValueError, RuntimeError) as problem:
        console.print(f"[red]{problem}", soft_wrap=True)
        raise typer.Exit(1) from problem
    finally:
        shutil.rmtree(folder)
    print_comparisons(console, found)
    if out:
        out.write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    typer.run(main)
