"""`python -m bench.scale --prompts 10M --hardware cluster`: what so many prompts take."""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from schemas import FoundryError

from .inputs import COSTS, MEASURED, Hardware, Images, load_costs, load_hardware, parse_count
from .limits import Limit
from .prediction import SAMPLES, PredictedValue, Prediction, predict, save_plot


def main(
    prompts: Annotated[str, typer.Option(help="How many, such as 10k, 1M, 10M.")] = "10M",
    hardware: Annotated[
        str, typer.Option(help="YAML file, or laptop, node, cluster, cluster-plan.")
    ] = "cluster",
    shard_size: Annotated[int, typer.Option(min=1, help="Prompts in a shard.")] = 100,
    images: Annotated[str, typer.Option(help="single (a file each) or packed.")] = "single",
    costs: Annotated[Path, typer.Option(help="YAML file of costs.")] = COSTS,
    measured: Annotated[Path, typer.Option(help="YAML file of measured costs.")] = MEASURED,
    seed: Annotated[int, typer.Option(help="Of the simulation and the intervals.")] = 0,
    samples: Annotated[int, typer.Option(min=0, help="Draws for the intervals.")] = SAMPLES,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw time and limits by number of prompts.")
    ] = None,
) -> None:
    """Print stages, bottlenecks, hours, USD, objects, memory and limits, with 90 % intervals."""
    console = Console()
    try:
        known = load_costs(costs, measured)
        machines = load_hardware(hardware, known)
        count = parse_count(prompts)
        chosen: Images = "packed" if images == "packed" else "single"
        if images != chosen:
            raise ValueError(f"--images {images}: single or packed")
    except (FoundryError, ValueError) as error:
        console.print(f"[red]{error}", soft_wrap=True)
        raise typer.Exit(1) from error
    print_prediction(
        console, predict(known, machines, count, shard_size, chosen, seed, samples), machines
    )
    if plot:
        save_plot(plot, known, seed)
        console.print(f"\nPlot: {plot}")


def print_prediction(console: Console, prediction: Prediction, hardware: Hardware) -> None:
    """The stages, each as if it were alone, the whole, and the limits in order."""
    console.print(
        f"[bold]{prediction.prompts:,} prompts[/bold] in shards of {prediction.shard_size:,}, "
        f"images {prediction.images}\n{hardware.description}\n"
    )
    console.print(_stages(prediction))
    console.print()
    console.print(_limits(prediction))


def _stages(prediction: Prediction) -> Table:
    columns = ("stage", "bottleneck", "hours", "USD", "objects", "peak GB", "first limit reached")
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for stage in prediction.stages:
        table.add_row(
            stage.stage,
            stage.bottleneck,
            number(stage.hours),
            number(stage.usd),
            number(stage.objects),
            number(stage.memory_gb),
            _limit(_first(prediction, stage.stage)),
        )
    table.add_section()
    table.add_row(
        "all",
        prediction.bottleneck,
        interval(prediction.hours),
        interval(prediction.usd),
        number(prediction.objects),
        number(prediction.memory_gb),
        _limit(prediction.first_limit),
        style="bold",
    )
    return table


def _limits(prediction: Prediction) -> Table:
    table = Table("limit", "reached at prompts", "used", "remedy", box=None, header_style="bold")
    for limit in prediction.limits:
        if not math.isinf(limit.prompts):
            used = prediction.prompts / limit.prompts if limit.prompts else math.inf
            table.add_row(limit.name, number(limit.prompts), f"{used:.0%}", limit.remedy)
    return table


def _first(prediction: Prediction, stage: str) -> Limit | None:
    reached = (limit for limit in prediction.limits if limit.prompts <= prediction.prompts)
    return next((limit for limit in reached if limit.stage == stage), None)


def _limit(limit: Limit | None) -> str:
    return f"{limit.name} (at {number(limit.prompts)})" if limit else ""


def interval(value: PredictedValue) -> str:
    """A value with its 5th and 95th percentile."""
    return f"{number(value.value)} ({number(value.low)} to {number(value.high)})"


def number(value: float) -> str:
    """Three digits, with k, M, G; nothing for zero."""
    if not value or abs(value) < 0.005:
        return ""
    for factor, suffix in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= factor:
            factor = 1e3 if suffix == " k" else factor
            return (
                f"{value / factor:,.3g}{suffix}"
                if value / factor < 1000
                else f"{value / factor:,.0f}{suffix}"
            )
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


if __name__ == "__main__":
    typer.run(main)
