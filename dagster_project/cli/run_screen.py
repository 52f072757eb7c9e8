"""What `interleave run` shows: progress of each asset, the first sequences, a summary."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.table import Table as RichTable

from assets.checkpoints.estimates import GrpoLoad, SftEstimate
from assets.core.foundry import FoundryResource
from assets.core.progress import LogProgress, ProgressFactory, reporting_to
from assets.trajectories.contact_sheet import write_showcase
from assets.trajectories.estimate import Estimate, estimate
from assets.trajectories.forecast import LedgerForecast
from inference.calls.forecast import MIN_PROMPTS, MIN_SHARDS, usd_range
from inference.servers.instance import home_servers
from schemas import TABLES
from schemas.trajectories import ATTEMPTS
from training.stage_needs import StageNeeds, gigabytes
from warehouse import Home
from warehouse.lake import Listings
from warehouse.sql import run_sql
from warehouse.views import refresh_views

from ..instance import open_instance
from ..run import run_lineage
from ..stage_runner import LineageResult

_MOST_QUERIED = 300  # shards; of more, reading all rows would take longer than a run without work
EXAMPLE_SQL = """\
select category, count(*) as attempts, round(avg(accepted::int), 2) as accepted,
       round(avg(overall), 1) as score
from attempts join scores using (trajectory_id, step_number, iteration)
join prompts on attempts.prompt_id = prompts.prompt_id
group by category order by attempts desc"""


def run_in_terminal(foundry: FoundryResource, select: list[str], jobs: int, force: bool) -> None:
    """Bring the lineage up to date, show its progress, then print a summary."""
    console = Console()
    listings: Listings = {}
    started, show = time.monotonic(), partial(_show_sequences, console, foundry.home, fresh=True)
    announce = partial(console.print, soft_wrap=True)
    with (
        open_instance(foundry.home, foundry.settings.cluster) as instance,
        terminal_progress(console),
        _reporting_servers(foundry.home, partial(console.print, markup=False, soft_wrap=True)),
    ):
        result = run_lineage(
            foundry, instance, foundry.shards, select, announce, show, jobs, force, listings
        )
    with foundry.home.lake.listed_in(listings):
        refresh_views(foundry.home)
        _summarize(console, foundry, result, time.monotonic() - started)


def estimate_in_terminal(foundry: FoundryResource) -> None:
    """Print what the trajectories of a size, and trainings, would take; nothing is called."""
    expected = estimate(foundry, foundry.shards)
    console = Console()
    console.print(f"{expected.trajectories:,} trajectories\n")
    console.print(_estimate_grid(expected))
    console.print(
        f"\nabout {expected.usd:,.2f} USD, {expected.gpu_hours:,.1f} GPU hours and "
        f"{expected.disk_gb:,.1f} GB of images; hours are those of a role alone, with all of its "
        "slots"
    )
    if expected.trajectories:
        console.print(_measured_line(expected.measured))
    for training in expected.sft:
        console.print(_sft_line(training))
    for load in expected.grpo:
        console.print(_grpo_line(load))
    console.print()
    console.print(_needs_grid(expected.needs))
    console.print(
        f"\nat most {gigabytes(expected.peak_disk)} of disk at a time for these, besides images; "
        "computed from sizes of models, not measured"
    )
    if missing := expected.missing_usd:
        console.print(
            f"\nthe budget does not cover this: {missing:,.2f} USD more are needed than the "
            f"{expected.budget:,.2f} USD that are left of `budget.usd`"
        )


def _sft_line(training: SftEstimate) -> str:
    seconds, version = training.seconds, training.measured
    hours = "unknown hours" if seconds is None else f"{seconds / 3600:,.1f} hours"
    source = f"as {version}" if version else "assumed"
    return (
        f"\n{training.name}: {training.rows:,} rows, {training.steps:,} steps, {hours} ({source}), "
        f"{training.gpu_hours:,.1f} GPU hours"
    )


def _needs_grid(needs: Sequence[StageNeeds]) -> RichTable:
    columns = ("GPUs", "of each GPU", "memory", "disk meanwhile", "disk")
    grid = RichTable("stage", *columns, box=None, header_style="bold")
    for need in needs:
        amounts = (need.gpu, need.host, need.working_disk, need.disk)
        cells = ("-" if amount == 0.0 else gigabytes(amount) for amount in amounts)
        grid.add_row(need.stage, str(need.gpus or "-"), *cells)
    return grid


def _measured_line(found: LedgerForecast) -> str:
    """What the finished shards of this home say of the same trajectories."""
    usd, seconds = found.forecast.usd, found.forecast.seconds
    parts = [
        f"{found.usd_per_prompt:.4f} USD a prompt" if found.usd_per_prompt is not None else "",
        usd_range(usd) if usd else "",
        f"{seconds.low / 3600:,.2f} to {seconds.high / 3600:,.2f} hours" if seconds else "",
    ]
    if not any(parts):
        needed = f"{MIN_PROMPTS} prompts for costs, {MIN_SHARDS} shards for hours"
        return f"\nmeasured here: not enough with these models and prices ({needed})"
    return f"\nmeasured here: {', '.join(filter(None, parts))} ({found.source})"


def _grpo_line(load: GrpoLoad) -> str:
    time = f"as {load.seconds_measured}" if load.seconds_measured else "assumed, at most"
    share = f"{load.drawn_measured:,} here" if load.drawn_measured else "assumed"
    return (
        f"\n{load.name}: {load.steps:,} steps of {load.rollouts:,} answers, about "
        f"{load.seconds:,.0f} s a step ({time}), {load.hours:,.1f} hours, "
        f"{load.gpu_hours:,.1f} GPU hours; {load.evaluated:,} answers to dev rows; "
        f"{load.drawn_share:.0%} of all answers are drawn and scored ({share})"
    )


def _estimate_grid(expected: Estimate) -> RichTable:
    columns = ("role", "model", "calls", "tokens in", "tokens out", "hours", "GPU hours", "USD")
    grid = RichTable(*columns, "known from", box=None, header_style="bold")
    for role in expected.roles:
        grid.add_row(
            f"{role.role}, {role.purpose}" if role.purpose else role.role,
            role.model,
            f"{role.calls:,}",
            f"{role.input_tokens:,}",
            f"{role.output_tokens:,}",
            f"{role.hours:,.1f}",
            f"{role.gpu_hours:,.1f}" if role.gpu_hours else "-",
            "no price" if role.usd is None else f"{role.usd:,.2f}",
            f"{role.measured:,} calls here" if role.measured else "assumed",
        )
    return grid


class BarProgress:
    """A bar for an asset and shard, which appears with the first update."""

    def __init__(self, bars: Progress, label: str) -> None:
        self._bars, self._label = bars, label
        self._task: TaskID | None = None

    def update(self, done: int, total: int, note: str = "") -> None:
        if self._task is None:
            self._task = self._bars.add_task(self._label, total=total, note=note)
        self._bars.update(self._task, completed=done, total=total, note=note)


@contextmanager
def terminal_progress(console: Console) -> Iterator[ProgressFactory]:
    """Assets report by bars on a terminal, else by a line each every ten seconds."""

    def line(label: str) -> LogProgress:
        return LogProgress(lambda text: console.print(text, soft_wrap=True), label)

    if not console.is_terminal:
        with reporting_to(line):
            yield line
        return
    columns = (BarColumn(), MofNCompleteColumn(), Elapsed(), TextColumn("[dim]{task.fields[note]}"))
    with Progress(TextColumn("{task.description:<34}"), *columns, console=console) as bars:
        bar = partial(BarProgress, bars)
        with reporting_to(bar):
            yield bar


@contextmanager
def _reporting_servers(home: Home, announce: Callable[[str], object]) -> Iterator[None]:
    """A line whenever a server that any process of the home uses changes its state."""
    ended = threading.Event()

    def watch() -> None:
        seen = dict(_server_states(home))
        while not ended.wait(1.0):
            now = dict(_server_states(home))
            for name, state in now.items():
                if seen.get(name) != state:
                    announce(f"Server {name}: {state}")
            seen = now

    watching = threading.Thread(target=watch, name="servers", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def _server_states(home: Home) -> Iterator[tuple[str, str]]:
    for folder in home_servers(home):
        if state := folder.state():
            note = f", {state.note}" if state.state in ("waiting", "failed") and state.note else ""
            yield f"{folder.spec.name} ({folder.spec.model})", f"{state.state}{note}"


def _summarize(
    console: Console, foundry: FoundryResource, result: LineageResult, seconds: float
) -> None:
    counts = f"{len(result.materialized)} materialized, {len(result.reused)} reused"
    console.print(f"\n[bold]{counts}[/bold] in {seconds:.0f} s\n")
    console.print(_row_counts(foundry.home))
    _show_sequences(console, foundry.home, fresh=bool(result.materialized))
    console.print(f'\n[bold]Query:[/bold] interleave sql "{EXAMPLE_SQL}"\n', highlight=False)
    if len(foundry.home.lake.partitions(ATTEMPTS)) <= _MOST_QUERIED:
        console.print(run_sql(foundry.home, EXAMPLE_SQL).decode(), highlight=False)
    if foundry.reduced:
        console.print(
            f"\nAt size {foundry.chosen_size} trainings and evaluation are short: they show the "
            "whole lineage; [bold]--size full[/bold] trains agents good enough to be promoted."
        )
    console.print("\nNext: [bold]make ui[/bold] opens the lineage in Dagster on port 3000.")


def _row_counts(home: Home) -> RichTable:
    grid = RichTable("table", "rows", "what a row is", box=None, header_style="bold")
    grid.columns[1].justify = "right"
    for table in TABLES.values():
        rows = f"{home.lake.rows(table):,}"
        grid.add_row(table.name, rows, table.description.split(":")[0])
    return grid


def _show_sequences(console: Console, home: Home, fresh: bool) -> None:
    """Contact sheet and page of some sequences, written again only when something changed."""
    folder = home.local / "stories"
    sheet, page = folder / "contact_sheet.png", folder / "story.html"
    if fresh or not (sheet.exists() and page.exists()):
        write_showcase(home, folder)
    console.print(f"\n[bold]Results:[/bold] {page}\n         {sheet}\n", soft_wrap=True)
