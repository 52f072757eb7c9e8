"""`interleave replay`, `branch` and `reviews`: recorded attempts judged by others, played on with
something changed, and reviewed by people."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from .options import HomeOption, ProfileOption, enable_interrupts

if TYPE_CHECKING:
    from assets.core.statistics import Interval
    from assets.evaluation.replay import ReplayReport
    from schemas.trajectories import BranchRow

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


def branch(
    trajectory: Annotated[
        str, typer.Argument(help="Id of a trajectory or a branch, or the beginning of one.")
    ],
    step: Annotated[int, typer.Argument(help="Step of the attempt from which on it differs.")],
    iteration: Annotated[int, typer.Argument(help="Iteration of that attempt, from 0.")],
    critic: Annotated[
        str | None,
        typer.Option(
            help="Critic from that attempt on: `promoted`, name@version, a folder, or an id at "
            "Hugging Face."
        ),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Draws that attempt, in place of the recorded prompt.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed from that attempt on.")] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="As if the critic had accepted that attempt.")
    ] = False,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
    out: Annotated[Path, typer.Option(help="The branch as an HTML file.")] = Path("branch.html"),
) -> None:
    """Play a recorded trajectory on from one of its attempts, with something changed there.

    What was drawn and judged before comes from the journals (docs/replay.md).

    Example: `interleave branch 3f2a 2 0 --accept`
    """
    from assets.core.foundry import FoundryResource
    from assets.trajectories.branches import Change, branches_of, play_branch
    from inference.generation.files import generation_html
    from warehouse.storage import storage_errors

    enable_interrupts()
    foundry = FoundryResource(profile=profile, root=home)
    change = Change(step, iteration, prompt, seed, critic, accept)
    branch = play_branch(foundry, trajectory, change)
    with storage_errors("written", out):
        out.write_text(generation_html(branch.view), "utf-8")
    console = Console(highlight=False)
    console.print(_branch_tree(branch.row, branches_of(foundry, branch.row.trajectory_id)))
    console.print(f"{branch.row.calls} model calls; the branch: {out}", soft_wrap=True)


def _branch_tree(made: "BranchRow", rows: "Sequence[BranchRow]") -> Tree:
    """All branches of a trajectory, each below what it leaves; the one that was made is bold."""
    nodes = {made.trajectory_id: Tree(Text(f"trajectory {made.trajectory_id}"))}
    waiting = list(rows)
    while waiting:
        row = next(row for row in waiting if row.parent_id in nodes)
        waiting.remove(row)
        style = "bold" if row.branch_id == made.branch_id else ""
        nodes[row.branch_id] = nodes[row.parent_id].add(Text(row.summary, style))
    return nodes[made.trajectory_id]


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
