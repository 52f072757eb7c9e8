"""`interleave replay` and `reviews`: what other judges, or people, say of recorded attempts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .options import HomeOption, ProfileOption, enable_interrupts

if TYPE_CHECKING:
    from assets.core.statistics import Interval
    from assets.evaluation.replay import ReplayReport

_MEASURES = {
    "draws per step": "draws",
    "final score": "final",
    "open steps": "open_steps",
    "good images accepted": "good_right",
    "bad images rejected": "bad_right",
}


def replay(
    critic: Annotated[
        str | None,
        typer.Option(
            help="Critic that judges again: `promoted`, name@version, a folder, an id at Hugging "
            "Face, or `profile`: the profile's own. Default: none, only stored verdicts and scores."
        ),
    ] = None,
    scorer: Annotated[
        bool, typer.Option("--scorer", help="The profile's scorer judges again, by its grades.")
    ] = False,
    accept_at_least: Annotated[
        float | None,
        typer.Option(
            min=0, max=10, help="Grade from which on an image is good; default: the profile's."
        ),
    ] = None,
    shards: Annotated[
        str, typer.Option(help="Shards, separated by commas; default: all of them.")
    ] = "",
    sample: Annotated[
        int | None, typer.Option(min=1, help="Number of trajectories, chosen by hash.")
    ] = None,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    out: Annotated[Path, typer.Option(help="Plot of cost and gain by strictness, a PNG.")] = Path(
        "replay.png"
    ),
) -> None:
    """Judge recorded attempts again without drawing: what another judge would have cost and gained.

    Example: `interleave replay --critic promoted --sample 200`
    """
    from assets.core.profile import load_profile
    from assets.evaluation.replay import replay_attempts
    from warehouse import Home
    from warehouse.storage import storage_errors

    from .run_screen import terminal_progress

    enable_interrupts()
    console = Console()
    names = [name for name in map(str.strip, shards.split(",")) if name]
    chosen = critic, scorer, accept_at_least, names, sample
    with terminal_progress(console):
        report = replay_attempts(load_profile(profile), Home(home), *chosen)
    _print_report(console, report)
    with storage_errors("written", out):
        out.write_bytes(report.plot)
    console.print(f"Plot: {out}", soft_wrap=True)


def _print_report(console: Console, report: "ReplayReport") -> None:
    table = Table("", title=f"{report.steps} steps of {report.requests} requests")
    for each in report.results:
        table.add_column(each.name)
    for label, field in _MEASURES.items():
        table.add_row(label, *(_cell(getattr(each, field)) for each in report.results))
    console.print(table)
    for name, changes in report.changes.items():
        found = changes.agreement
        console.print(
            f"{name}: of {changes.recorded} draws it saves {changes.saved}, and stops "
            f"{changes.too_early} too early; {changes.wasted} good images would be drawn again. "
            f"Agreement with the recorded verdicts {_cell(found.share if found else None)}, "
            f"kappa {_cell(found.kappa if found else None)}.",
            soft_wrap=True,
        )


def _cell(interval: "Interval | None") -> str:
    return interval.in_words() if interval else "missing"


def reviews(profile: ProfileOption = "sketch", home: HomeOption = ".interleave") -> None:
    """Show how much of every shard people have reviewed, and how far critic, scorer and people
    agree; the page Review of `interleave serve` is where they review (docs/reviews.md)."""
    from assets.core.profile import load_profile
    from assets.reviews.assets import agreement_rows, shard_labels, shares_table
    from assets.reviews.opinions import shard_shares
    from warehouse import Home

    settings, lake = load_profile(profile).curation, Home(home)
    share = settings.reviews.share if settings.reviews else 0.0
    console = Console(highlight=False, soft_wrap=True)
    shares = shard_shares(lake)
    if not shares:
        console.print("there are no attempts yet: `interleave run` makes some")
        return
    console.print(_grid(shares_table(shares, share)))
    labels = shard_labels(lake, None, settings.critic.verdicts.accept_at_least)
    console.print(_grid(agreement_rows(labels)))


def _grid(rows: Sequence[Mapping[str, object]]) -> Table:
    grid = Table(box=None)
    for name in rows[0]:
        grid.add_column(Text(name))
    for row in rows:
        grid.add_row(*(Text(str(cell)) for cell in row.values()))
    return grid
