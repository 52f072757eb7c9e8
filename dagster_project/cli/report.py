"""`interleave report`: a benchmark run, or two compared, as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from .options import HomeOption


def report(
    runs: Annotated[
        list[str] | None, typer.Argument(help="One run, or two to compare; default: list all.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file; default: report.html in this folder.")
    ] = None,
    home: HomeOption = ".interleave",
) -> None:
    """Write a report of benchmark runs: numbers, published ones, worst items, two runs compared.

    Example: `interleave report wise-legacy.gpu-1a2b3c4d.5e6f7081`
    """
    from assets.benchmarks.report import Run, run_names, write_report
    from schemas import FoundryError
    from warehouse import Home

    place = Home(home)
    if not runs:
        typer.echo(
            "\n".join(run_names(place)) or "No runs yet: create one with `interleave evaluate`."
        )
        return
    if len(runs) > 2:
        raise FoundryError("name one run, or two to compare")
    chosen = [Run.read(place, name) for name in runs]
    typer.echo(str(write_report(place, chosen, (out or Path("report.html")).absolute())))
