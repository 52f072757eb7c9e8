"""`interleave verify`: find damaged files of a home, and repair them."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .options import HomeOption, ProfileOption, enable_interrupts

if TYPE_CHECKING:
    from rich.console import Console

    from warehouse import Home
    from warehouse.verify import Damage


def verify(
    home: HomeOption = ".interleave",
    profile: ProfileOption = "sketch",
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Make again what can be made without a paid call; move the rest away."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print findings as JSON.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Files that are read at the same time.")] = max(
        4, os.cpu_count() or 1
    ),
) -> None:
    """Read every stored file and list what is damaged; exit status 1 if anything remains so."""
    from rich.console import Console

    from assets.core.foundry import FoundryResource
    from warehouse import Home

    from .. import verify as verification
    from ..instance import open_instance

    enable_interrupts()
    store, screen = Home(home), Console(stderr=True)
    damage, count = _find(store, jobs, screen)
    remaining = damage
    if repair and damage:
        foundry = FoundryResource(profile=profile, root=home)
        with open_instance(foundry.home, foundry.settings.cluster) as instance:
            work = verification.Repair(
                foundry, instance, lambda line: screen.print(line, soft_wrap=True, markup=False)
            )
            work.run(damage)
        remaining, count = _find(store, jobs, screen)
    files = {each.file for each in remaining}
    repaired = [each for each in damage if each.file not in files]
    if as_json:
        sys.stdout.buffer.write(verification.as_json(remaining, repaired))
    else:
        costs = verification.paid_for(store, remaining)
        for each in remaining:
            usd = costs.get(each.file)
            typer.echo(f"{each} (its calls cost {usd:.4g} USD)" if usd else str(each))
        notes = f", {len(repaired)} repaired; originals are in {work.folder}" if repaired else ""
        typer.echo(f"{count} files verified: {len(remaining)} damaged{notes}")
    if remaining:
        raise SystemExit(1)


def _find(home: "Home", jobs: int, screen: "Console") -> "tuple[list[Damage], int]":
    """Damage, and the number of checks, with a progress bar on a terminal."""
    from rich.progress import Progress

    from warehouse.verify import find_damage

    from ..verify import all_checks

    checks = all_checks(home)
    with Progress(console=screen, disable=not screen.is_terminal) as bars:
        task = bars.add_task("Verifying", total=len(checks))
        return list(find_damage(checks, jobs, lambda: bars.advance(task))), len(checks)
