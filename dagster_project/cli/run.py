"""`interleave run` and `improve`: bring the lineage up to date, once or in rounds."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from .options import HomeOption, ProfileOption, enable_interrupts

if TYPE_CHECKING:
    from assets.core.foundry import FoundryResource

_OBJECTS_A_COLLECTION = 50_000  # newly created ones; Python's default is 700


def run(
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    size: Annotated[
        str,
        typer.Option(
            help="Number of shards: a size of the profile; default: that of the lake, or demo."
        ),
    ] = "",
    select: Annotated[
        str,
        typer.Option(
            help="Assets to bring up to date, comma-separated; +NAME: with all that it is made "
            "from; default: all."
        ),
    ] = "",
    jobs: Annotated[
        int,
        typer.Option(
            min=1, help="Shards processed at the same time; they share the profile's limits."
        ),
    ] = os.cpu_count() or 1,
    benchmark: Annotated[
        str,
        typer.Option(
            help="With --select ablation: compare its variants on this benchmark, such as ueval, "
            "instead of held-out requests."
        ),
    ] = "",
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Run again what is up to date; finished model calls are reused."
        ),
    ] = False,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate", help="Only print expected calls, cost, time and disk space; run nothing."
        ),
    ] = False,
) -> None:
    """Bring the lineage up to date; whatever is up to date is reused."""
    with _imported_for_good():
        from assets.core.foundry import FoundryResource

        from .run_screen import estimate_in_terminal, run_in_terminal

    foundry = FoundryResource(profile=profile, root=home, size=size)
    names = [name.strip() for name in select.split(",") if name.strip()]
    if estimate:
        estimate_in_terminal(foundry)
        return
    enable_interrupts()
    if benchmark:
        _compare_variants(foundry, benchmark, names, jobs, force)
    else:
        run_in_terminal(foundry, names, jobs, force)


def _compare_variants(
    foundry: "FoundryResource", benchmark: str, names: list[str], jobs: int, force: bool
) -> None:
    """Run the ablation on a benchmark, and print its page."""
    from assets.evaluation.ablation_benchmark import ablation_page

    from ..benchmarks import with_ablation_on
    from .run_screen import run_in_terminal

    if "ablation" not in names:
        raise typer.BadParameter("it is for --select ablation", param_hint="--benchmark")
    run_in_terminal(with_ablation_on(benchmark, foundry), names, jobs, force)
    typer.echo(ablation_page(foundry.home, benchmark).read_text("utf-8"))


@contextmanager
def _imported_for_good() -> Iterator[None]:
    """Around imports: the garbage collector leaves modules alone, and comes less often afterwards.

    Of a run with nothing to do at 10,000 shards, it would take a third of the CPU time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(_OBJECTS_A_COLLECTION)
        gc.enable()


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
