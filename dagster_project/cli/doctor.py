"""`interleave doctor` and `rehearse`: what a profile lacks, and its lineage with tiny models."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .options import HomeOption, ProfileOption, enable_interrupts


def doctor(profile: ProfileOption = "sketch", home: HomeOption = ".interleave") -> None:
    """List what a profile needs and is missing here; exit status 1 if anything is."""
    from ..doctor import report

    raise typer.Exit(0 if report(profile, home) else 1)


def rehearse(
    profile: ProfileOption = "sketch",
    folder: Annotated[
        Path | None, typer.Option(help="New folder for its output; default: a temporary one.")
    ] = None,
    prompts: Annotated[int, typer.Option(min=8, help="Prompts, held-out ones included.")] = 16,
) -> None:
    """Run a profile's whole lineage with tiny random models, and report time and memory.

    Real servers, trainers and service, on the CPU, without keys or network (docs/rehearsal.md).
    """
    import tempfile

    from schemas import FoundryError

    from ..rehearsal import report, stages

    enable_interrupts()
    chosen = folder or Path(tempfile.mkdtemp(prefix="rehearsal-"))
    if chosen.exists() and any(chosen.iterdir()):
        raise FoundryError(f"{chosen} is not empty: name a new folder")
    chosen.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    done = stages.rehearse(
        profile, chosen.absolute(), prompts, lambda name: console.print(f"Rehearsing: {name}")
    )
    report.write_report(done)
    report.show_report(done, console)
    raise typer.Exit(done.failed)
