"""What `interleave run` shows: a bar for every piece of work, then what came of it."""

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.table import Table as RichTable

from assets.core.foundry import FoundryResource
from assets.core.progress import reporting_to
from assets.trajectories import gallery
from assets.trajectories.estimate import Estimate, estimate
from schemas import TABLES, Table
from warehouse import Home, refresh_views
from warehouse.sql import run_sql

from ..instance import open_instance
from ..run import LineageResult, run_lineage

EXAMPLE_SQL = """\
select category, count(*) as attempts, round(avg(accepted::int), 2) as accepted,
       round(avg(overall), 1) as score
from attempts join scores using (trajectory_id, step_number, iteration)
join prompts on attempts.prompt_id = prompts.prompt_id
group by category order by attempts desc"""


def run_in_terminal(
    profile: str, root: str, size: str, select: list[str], jobs: int, force: bool = False
) -> None:
    """Bring the lineage up to date with progress bars, then print a summary."""
    console = Console()
    foundry = FoundryResource(profile=profile, root=root)
    shards = foundry.settings.shards(size)
    started = time.monotonic()
    with (
        open_instance(foundry.home, foundry.settings.cluster) as instance,
        _bars(console) as bars,
        reporting_to(lambda label: TerminalProgress(bars, label)),
    ):
        show = bars.console.print
        outcome = run_lineage(foundry, instance, shards, select, show, jobs, force)
    refresh_views(foundry.home)
    _summarize(console, foundry, outcome, time.monotonic() - started)


def estimate_in_terminal(profile: str, root: str, size: str) -> None:
    """Print what the stories of a size would take; nothing is called."""
    foundry = FoundryResource(profile=profile, root=root)
    expected = estimate(foundry, foundry.settings.shards(size))
    console = Console()
    console.print(f"{expected.stories:,} stories to tell\n")
    console.print(_estimate_grid(expected))
    console.print(
        f"\nabout {expected.usd:,.2f} USD, {expected.gpu_hours:,.1f} GPU hours and "
        f"{expected.disk_gb:,.1f} GB of pictures; hours are those of a role alone, with all of its "
        "slots"
    )


def _estimate_grid(expected: Estimate) -> RichTable:
    columns = ("role", "model", "calls", "tokens in", "tokens out", "hours", "GPU hours", "USD")
    grid = RichTable(*columns, "known from", box=None, header_style="bold")
    for role in expected.roles:
        grid.add_row(
            role.role,
            role.model,
            f"{role.calls:,}",
            f"{role.input_tokens:,}",
            f"{role.output_tokens:,}",
            f"{role.hours:,.1f}",
            f"{role.gpu_hours:,.1f}" if role.gpu_hours else "-",
            "no price" if role.usd is None else f"{role.usd:,.2f}",
            f"{role.seen:,} calls here" if role.seen else "assumed",
        )
    return grid


class TerminalProgress:
    """A bar per asset and shard, which appears with the first update."""

    def __init__(self, bars: Progress, label: str) -> None:
        self._bars, self._label = bars, label
        self._task: TaskID | None = None

    def update(self, done: int, total: int, note: str = "") -> None:
        if self._task is None:
            self._task = self._bars.add_task(self._label, total=total, note=note)
        self._bars.update(self._task, completed=done, total=total, note=note)


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<34}"),
        BarColumn(),
        MofNCompleteColumn(),
        Elapsed(),
        TextColumn("[dim]{task.fields[note]}"),
        console=console,
    )


def _summarize(
    console: Console, foundry: FoundryResource, outcome: LineageResult, seconds: float
) -> None:
    made, kept = len(outcome.materialized), len(outcome.reused)
    console.print(f"\n[bold]{made} materialized, {kept} reused[/bold] in {seconds:.0f} s\n")
    console.print(_row_counts(foundry.home))
    _show_stories(console, foundry.home, fresh=bool(outcome.materialized))
    _show_query(console, foundry.home)
    console.print("\nNext: [bold]make ui[/bold] opens the lineage in Dagster on port 3000.")


def _row_counts(home: Home) -> RichTable:
    grid = RichTable("table", "rows", "what a row is", box=None, header_style="bold")
    grid.columns[1].justify = "right"
    for table in TABLES.values():
        grid.add_row(table.name, f"{_rows(home, table):,}", table.description.split(":")[0])
    return grid


def _rows(home: Home, table: Table) -> int:
    return sum(home.lake.rows(table, partition) for partition in home.lake.partitions(table))


def _show_stories(console: Console, home: Home, fresh: bool) -> None:
    """Contact sheet and storybook, drawn again only when something changed."""
    folder = home.local / "stories"
    sheet, book = folder / "contact_sheet.png", folder / "story.html"
    if fresh or not (sheet.exists() and book.exists()):
        gallery.write_showcase(home, folder)
    console.print(f"\n[bold]Look:[/bold] {book}\n      {sheet}")


def _show_query(console: Console, home: Home) -> None:
    console.print(f'\n[bold]Ask:[/bold] interleave sql "{EXAMPLE_SQL}"\n', highlight=False)
    console.print(run_sql(home, EXAMPLE_SQL).decode(), highlight=False)
