"""`interleave improve`: the agents make data, are trained on it, evaluated and promoted."""

from typing import Annotated

import typer

from .options import HomeOption, ProfileOption, enable_interrupts


def improve(
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds of this home in all, finished ones included.")
    ] = 1,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    force: Annotated[
        bool, typer.Option("--force", help="One more round though the last one did not help.")
    ] = False,
) -> None:
    """Rounds: new prompts, trajectories by the promoted agents, training on them, promotion.

    It stops by itself when a round does not help. Killed, it goes on where it stopped.
    """
    from rich.console import Console
    from rich.table import Table

    from assets.core.foundry import FoundryResource
    from warehouse.views import refresh_views

    from ..improve import improve as run_rounds
    from ..instance import open_instance
    from .run_screen import terminal_progress

    enable_interrupts()
    console, foundry = Console(), FoundryResource(profile=profile, root=home)
    with (
        open_instance(foundry.home, foundry.settings.cluster) as instance,
        terminal_progress(console),
    ):
        finished = run_rounds(foundry, instance, rounds, console.print, force)
    refresh_views(foundry.home)
    grid = Table("round", "decision", "benchmark", "final success", "change", box=None)
    for row in finished:
        for each in (m for m in row.measures if m.metric == "final_success"):
            change = (each.difference, each.difference_low, each.difference_high)
            cell = "–" if None in change else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*change)
            mean = f"{each.mean:.3f} [{each.low:.3f}, {each.high:.3f}]"
            grid.add_row(str(row.round), row.decision, each.benchmark, mean, cell)
    console.print(grid)
