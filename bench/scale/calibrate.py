"""Measures the costs of stages from real homes, and writes the measured part of the costs.

What a home knows: its ledger (`model_calls`), journals, files, Dagster's history. CPU and memory
are those of the runs that filled it (`runs.py`). `python -m bench.scale.calibrate` fills two homes,
the same prompts in one shard and in four: what a shard costs besides its prompts is the difference.

`--write` updates `measured.yaml`; compare machines with the same load only.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from statistics import fmean, pstdev
from typing import Annotated, Any, NamedTuple

import typer
import yaml
from PIL import Image, ImageFilter

from assets.core.foundry import FoundryResource
from dagster_project import definitions  # noqa: F401  declares the assets
from dagster_project.instance import open_instance
from dagster_project.stages import select_nodes, up_to_date_partitions
from warehouse import EncodedImage, Home
from warehouse.views import connect

from .inputs import MEASURED
from .runs import SHARDED, Observed, World, observe, world

PROMPTS, SHARDS = 100, 4
PROVIDER = "sketch-provider"  # the model of the roles that a local provider answers


class Filled(NamedTuple):
    """A home, what the run that filled it took, and the same command with nothing to do."""

    world: World
    run: Observed
    noop: Observed


def fill(folder: Path, shards: int, shard_size: int, jobs: int = 1, latency: float = 0.0) -> Filled:
    with world(folder, shards, shard_size, latency) as each:
        return Filled(each, each.run(jobs), each.run(jobs))


def calibrate(folder: Path, prompts: int = PROMPTS, latency: float = 0.0) -> dict[str, Any]:
    """Costs of this machine, from so many prompts in one shard, and the same in `SHARDS`."""
    one = fill(folder / "one", 1, prompts, latency=latency)
    several = fill(folder / "several", SHARDS, prompts // SHARDS, latency=latency)
    return costs_of(one, several, latency)


def costs_of(one: Filled, several: Filled, latency: float = 0.0) -> dict[str, Any]:
    """The measured part of the costs, as YAML data. The CPU of prompts is that of their calls."""
    extra_shards = several.world.shards - one.world.shards
    start = (one.noop.cpu_seconds + several.noop.cpu_seconds) / 2
    run_cpu = max(0.0, several.run.cpu_seconds - one.run.cpu_seconds) / extra_shards
    prompt_cpu = (one.run.cpu_seconds - start - run_cpu) / one.world.shard_size
    home = Home(one.world.home)
    how = f"{os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}"
    sketch = f"sketch world, {one.world.shard_size} prompts, {how}"
    worker = observe([".venv/bin/python", "-c", "import dagster_project.run"])
    more_prompts = one.world.shard_size - several.world.shard_size
    memory = max(0.0, one.run.memory_gb - several.run.memory_gb) / more_prompts

    def number(value: float, unit: str, what: str = "", error: float = 0.0) -> dict[str, Any]:
        found: dict[str, Any] = {"value": float(f"{value:.4g}"), "unit": unit}
        return found | {"source": f"measured: {what or sketch}", "error": error}

    called = roles(home, one.world.shard_size, prompt_cpu, number)
    models = {"sketch": {"roles": called}}
    if latency:
        models = {"sketch": {"roles": {"generator": called.pop("generator")}}}
        models[PROVIDER] = {"roles": called}
    attempts = attempts_per_prompt(home)
    return {
        "workloads": {
            "sketch": {
                "attempts": number(fmean(attempts), "calls per prompt", f"ledger, {sketch}"),
                "attempts_spread": round(pstdev(attempts) / fmean(attempts), 3),
                **files_per_attempt(home, sum(attempts), number),
            }
        },
        "models": models,
        "engine": {
            "process_cpu_seconds": number(start, "s", f"a run with nothing to do, {how}", 0.1),
            "worker_cpu_seconds": number(worker.cpu_seconds, "s", f"imports, {how}", 0.1),
            "run_cpu_seconds": number(
                run_cpu, "s", f"{several.world.shards} shards less one, same prompts, {how}", 0.3
            ),
            "noop_seconds": number(
                noop_seconds(several.world), "s", f"up_to_date_partitions, {how}", 0.1
            ),
            "table_files": number(files(home, "lake"), "files", sketch),
            "journals": number(files(home, "journals"), "files", sketch),
            "history_kilobytes": number(history_kilobytes(several.world), "kB", sketch),
            "memory_gb": number(one.run.memory_gb, "GB", f"VmHWM, {sketch}", 0.05),
            "memory_megabytes_per_prompt": number(
                memory * 1e3,
                "MB",
                f"VmHWM, shards of {one.world.shard_size} less {several.world.shard_size}, {how}",
                0.5,
            ),
        },
    }


def attempts_per_prompt(home: Home) -> list[int]:
    return [row[0] for row in _rows(home, "select count(*) from attempts group by prompt_id")]


def roles(home: Home, prompts: int, prompt_cpu: float, number: Any) -> dict[str, Any]:
    """Calls of the loop's roles. CPU of a prompt is divided among its calls: evenly, since what a
    model itself takes is part of `seconds` and mostly waiting."""
    sql = """
        select role, count(*), avg(seconds), coalesce(stddev(seconds), 0),
            avg(input_tokens), avg(output_tokens)
        from model_calls where not cached and error is null group by all
    """
    found = _rows(home, sql)
    calls = sum(row[1] for row in found)
    attempts = sum(attempts_per_prompt(home))
    what = f"ledger, {prompts} prompts"
    return {
        role: {
            "calls": round(count / (prompts if role == "planner" else attempts), 3),
            "seconds": number(seconds, "s", what),
            "spread": round(spread / seconds, 3) if seconds else 0.0,
            "cpu_seconds": number(
                prompt_cpu * prompts / calls, "s", f"CPU of the run by its calls, {what}", 0.1
            ),
            **{
                name: number(tokens, "tokens", what)
                for name, tokens in (("input_tokens", given), ("output_tokens", written))
                if tokens
            },
        }
        for role, count, seconds, spread, given, written in sorted(found)
    }


def files_per_attempt(home: Home, attempts: int, number: Any) -> dict[str, Any]:
    """Images, rows and journal lines."""
    images = [path.stat().st_size for path in (home.local / "images").rglob("*.png")]
    shards = (path for path in (home.local / "lake").rglob("*.parquet") if _is_shard(path))
    rows = sum(path.stat().st_size for path in shards)
    journals = sum(path.stat().st_size for path in (home.local / "journals").rglob("*.jsonl"))
    return {
        "images": number(len(images) / attempts, "images per attempt"),
        "image_megabytes": number(fmean(images) / 1e6, "MB"),
        "row_kilobytes": number(rows / attempts / 1e3, "kB per attempt"),
        "journal_kilobytes": number(journals / attempts / 1e3, "kB per attempt"),
    }


def files(home: Home, folder: str) -> int:
    """Files of a shard in the tables or in the journals of a home with one shard."""
    paths = (path for path in (home.local / folder).rglob("*") if path.is_file())
    return sum(folder == "journals" or _is_shard(path) for path in paths)


def _is_shard(path: Path) -> bool:
    return path.name.endswith(".parquet") and "sketchbook-" in path.parent.name


def history_kilobytes(filled: World) -> float:
    """Dagster's history per run of a shard; that of the bank's assets is in one run more."""
    history = Home(filled.home).dagster / "history"
    return sum(path.stat().st_size for path in history.rglob("*.db")) / (filled.shards + 1) / 1e3


def noop_seconds(filled: World) -> float:
    """CPU per shard to see that it is up to date."""
    foundry = FoundryResource(profile=str(filled.profile), root=str(filled.home))
    os.environ.setdefault("BENCH_KEY", "none")
    with open_instance(Home(filled.home), foundry.settings.cluster) as instance:
        nodes = select_nodes(SHARDED, foundry.settings)
        names = sorted(foundry.home.journals("trajectories"))
        started = time.process_time()
        for node in nodes:
            up_to_date_partitions(node, foundry, instance, names)
        return (time.process_time() - started) / len(names)


def image_cpu_seconds(repeats: int = 5) -> dict[str, float]:
    """CPU to decode a 1024 x 1024 PNG, and to reduce it to 768 pixels, as clients do before they
    send it; the image is noise of several scales, as incompressible as a photograph."""
    noise = Image.effect_noise((1024, 1024), 30).filter(ImageFilter.GaussianBlur(0.6))
    encoded = EncodedImage.of(noise)

    def reduce() -> None:
        image = EncodedImage(encoded.data).image
        image.thumbnail((768, 768), Image.Resampling.LANCZOS)
        EncodedImage.of(image)

    work = {"decode": lambda: EncodedImage(encoded.data).image, "reduce": reduce}
    return {name: _cpu(each, repeats) for name, each in work.items()}


def _cpu(work: Any, repeats: int) -> float:
    started = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - started) / repeats


def as_yaml(costs: dict[str, Any]) -> str:
    """With every number on one line."""
    dumper: Any = yaml.safe_dump
    text: str = dumper(costs, sort_keys=False, default_flow_style=None, width=1000)
    return text


def _rows(home: Home, sql: str) -> Iterable[Any]:
    with closing(connect(home)) as connection:
        return connection.sql(sql).fetchall()


def main(
    write: Annotated[bool, typer.Option(help="Write measured.yaml; else print it.")] = False,
) -> None:
    """Fill two homes with a hundred prompts each, and measure."""
    folder = Path(tempfile.mkdtemp(prefix="interleave-scale-"))
    try:
        text = as_yaml(calibrate(folder))
    finally:
        shutil.rmtree(folder)
    header = "# Written by `python -m bench.scale.calibrate --write`.\n"
    if write:
        MEASURED.write_text(header + text, "utf-8")
    print(text)


if __name__ == "__main__":
    typer.run(main)
