"""`interleave report`: benchmark runs as one HTML page, or the trained agents as Markdown."""

from pathlib import Path
from typing import Annotated

import typer

from .options import HomeOption, ProfileOption


def report(
    runs: Annotated[
        list[str] | None, typer.Argument(help="One run, or two to compare; default: list all.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file; default: report.html in this folder.")
    ] = None,
    agents: Annotated[
        bool,
        typer.Option(
            "--agents",
            help="Print instead, as Markdown, how good the trained agents are on test items, and "
            "which of the paper's relations hold (of the ablation, else of evaluation).",
        ),
    ] = False,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
) -> None:
    """Write a report of benchmark runs: numbers, published ones, worst items, two runs compared.

    Examples: `interleave report wise-legacy.gpu-1a2b3c4d.5e6f7081`, `interleave report --agents`
    """
    if agents:
        return _print_agents(profile, home)
    from assets.benchmarks.report import write_report
    from assets.benchmarks.results import Run, run_names
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


def _print_agents(profile: str, home: str) -> None:
    from assets.core.foundry import FoundryResource
    from assets.evaluation.paper import markdown, test_summaries
    from schemas import FoundryError
    from schemas.training import EVALUATIONS

    foundry = FoundryResource(profile=profile, root=home)
    summaries = test_summaries(foundry.rows(EVALUATIONS), foundry.settings.evaluation)
    if not summaries:
        hint = "materialize `evaluation`, or `ablation` for all variants and training seeds"
        raise FoundryError(f"{home} has no values of test items: {hint}")
    typer.echo(markdown(summaries))
