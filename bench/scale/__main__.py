"""`python -m bench.scale --prompts 10M --hardware cluster`: what so many prompts take."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from schemas import FoundryError

from .inputs import COSTS, MEASURED, Images, load_costs, load_hardware, parse_count
from .plot import save_plot
from .prediction import SAMPLES, predict
from .report import print_prediction


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


if __name__ == "__main__":
    typer.run(main)
