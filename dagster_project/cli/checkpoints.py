"""`interleave checkpoints`, `promote`, `rollback`, `push`, `pull`: models here and on the Hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from schemas import FoundryError

from .options import HomeOption, ProfileOption

if TYPE_CHECKING:
    from assets.hub.repository import Kind, PushPlan, Repository
    from schemas.training import CheckpointRow
    from warehouse import Home

_METRICS = ("loss", "reward", "plan_correct", "verdict_accuracy_true", "verdict_accuracy_false")
_COLOURS = {"promoted": "green", "candidate": "yellow", "rejected": "red"}
_COLUMNS = ("name", "version", "parent", "status", "metrics", "made")
_DATA = "data"


NameArgument = Annotated[str, typer.Argument(help="Name listed by `interleave checkpoints`.")]


def checkpoints(
    home: HomeOption = ".interleave",
    name: Annotated[str, typer.Option(help="Only versions of this checkpoint.")] = "",
) -> None:
    """List trained models: parent, status, main metrics."""
    from training.registry import CheckpointRegistry
    from warehouse import Home

    lake, console = Home(home), Console()
    rows = CheckpointRegistry(lake).rows(name or None)
    if not rows:
        console.print(f"No checkpoints{f' of {name}' if name else ''} in {lake.root} yet.")
        return
    grid = Table(*_COLUMNS, box=None, header_style="bold")
    for row in rows:
        status = f"[{_COLOURS[row.status]}]{row.status}[/]"
        made = f"{row.created_at:%Y-%m-%d %H:%M}"
        grid.add_row(row.name, row.version, row.parent or "", status, _metrics(lake, row), made)
    console.print(grid)


def promote(
    name: NameArgument,
    version: Annotated[str, typer.Argument(help="Version listed by `interleave checkpoints`.")],
    home: HomeOption = ".interleave",
) -> None:
    """Use a version of a checkpoint, regardless of its evaluation."""
    from training.registry import CheckpointRegistry
    from warehouse import Home

    row = CheckpointRegistry(Home(home)).promote(name, version, "by command")
    typer.echo(f"{row.name} {row.version} is in use")


def rollback(name: NameArgument, home: HomeOption = ".interleave") -> None:
    """Use the version again that was in use before the current one."""
    from training.registry import CheckpointRegistry
    from warehouse import Home

    row = CheckpointRegistry(Home(home)).roll_back(name, "by command")
    typer.echo(f"{row.name} {row.version} is in use again")


def _metrics(home: "Home", row: "CheckpointRow") -> str:
    """The main metrics of training and of the newest evaluation."""
    import orjson

    values = {**orjson.loads(row.metrics), **_evaluation(home, f"{row.name}@{row.version}")}
    return ", ".join(f"{name} {values[name]:.3g}" for name in _METRICS if name in values)


def _evaluation(home: "Home", checkpoint: str) -> dict[str, float]:
    """Means of a checkpoint's own metrics over the development items."""
    import pyarrow.compute as pc

    from schemas.training import EVALUATIONS

    agent = pc.field("planner" if checkpoint.startswith("planner") else "critic")
    heldout = pc.ends_with(pc.field("benchmark"), "-heldout-dev")
    rows = home.lake.read(EVALUATIONS, where=pc.ends_with(agent, checkpoint) & heldout)
    means = rows.group_by("metric").aggregate([("value", "mean")])
    return dict(zip(means["metric"].to_pylist(), means["value_mean"].to_pylist(), strict=True))


DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="List the files with their sizes; change nothing.")
]


def push(
    what: Annotated[
        str,
        typer.Argument(help="`data`: the training sets; or a checkpoint: NAME or NAME@VERSION."),
    ],
    repository: Annotated[str, typer.Argument(help="OWNER/NAME on the Hub.")],
    public: Annotated[
        bool, typer.Option("--public", help="Create it public; by default it is private.")
    ] = False,
    license: Annotated[str, typer.Option(help="Licence of the card; by default apache-2.0.")] = "",
    dry_run: DryRunOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Push without asking.")] = False,
    profile: ProfileOption = "sketch",
    home: HomeOption = ".interleave",
) -> None:
    """Push training sets or a checkpoint to the Hugging Face Hub, with a card.

    Lists the files and asks before it sends them, in one commit; an interrupted push sends what is
    missing. The token is that of HF_TOKEN; HF_ENDPOINT names another server than the public one.
    """
    from assets.hub.repository import Repository
    from warehouse import Home

    kind, title, paths = _pushed(Home(home), what, profile)
    files: dict[str, Path | bytes] = {**paths}
    if license:
        files["README.md"] = _with_license(paths["README.md"], license)
    target = Repository.named(repository, kind)
    plan = target.compare(files)
    if plan.head and plan.public and not public:
        raise FoundryError(f"{target} is public: add --public to push to it all the same")
    _show_push(target, plan, public)
    if dry_run:
        return
    if not plan.missing and not plan.deleted:
        typer.echo(f"{target} is up to date")
        return
    if not yes and not _confirmed():
        raise FoundryError("nothing was pushed: answer y, or add --yes")
    commit = target.upload(files, plan, public, f"{title} by Interleave Foundry")
    typer.echo(f"pushed to {target}, commit {commit[:12]}")


def pull(
    repository: Annotated[
        str,
        typer.Argument(help="OWNER/NAME of a checkpoint, datasets/OWNER/NAME of training sets."),
    ],
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "main",
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace rows that the tables have.")
    ] = False,
    dry_run: DryRunOption = False,
    home: HomeOption = ".interleave",
) -> None:
    """Pull training sets into the tables of a home, or a checkpoint into its registry.

    An interrupted pull continues with the files that are missing. A private repository needs a
    token in HF_TOKEN.
    """
    from assets.hub.repository import Repository
    from warehouse import Home

    lake, source = Home(home), Repository.named(repository)
    commit = source.commit(revision)
    folder = lake.hub.absolute() / str(source).replace("/", "--")
    if dry_run:
        _show_pull(source, commit)
        return
    source.download(commit, folder)
    if source.kind == "dataset":
        _store_data(lake, folder, replace)
    else:
        _register(lake, folder, f"{source}@{commit}")


def _pushed(home: "Home", what: str, profile: str) -> tuple["Kind", str, dict[str, Path]]:
    """Kind of repository, title of the commit, and files."""
    if what == _DATA:
        from assets.core.profile import load_profile
        from assets.hub.contents import training_sets

        return "dataset", "Training sets", training_sets(home, load_profile(profile).curation)
    from assets.hub.contents import checkpoint_files

    identity, files = checkpoint_files(home, what)
    return "model", identity, files


def _with_license(card: Path, license: str) -> bytes:
    from huggingface_hub import RepoCard

    content = RepoCard(card.read_text("utf-8"))
    content.data["license"] = license
    return str(content).encode()


def _show_push(target: "Repository", plan: "PushPlan", public: bool) -> None:
    state = "new" if plan.head is None else "exists"
    visible = "public" if public or (plan.head and plan.public) else "private"
    typer.echo(f"{target} ({visible}, {state})")
    for each in plan.files:
        action = "there  " if each.present else "upload "
        typer.echo(f"  {action} {decimal(each.size):>10}  {each.path}")
    for path in plan.deleted:
        typer.echo(f"  delete  {'':>10}  {path}")
    total = sum(each.size for each in plan.missing)
    typer.echo(f"{len(plan.missing)} of {len(plan.files)} files to upload, {decimal(total)}")


def _show_pull(source: "Repository", commit: str) -> None:
    files = source.files(commit)
    typer.echo(f"{source} at {commit[:12]}")
    for each in files:
        typer.echo(f"  {decimal(each.size):>10}  {each.path}")
    typer.echo(f"{len(files)} files, {decimal(sum(each.size for each in files))}")


def _confirmed() -> bool:
    """The answer of a user; no where nobody can answer."""
    import sys

    return sys.stdin.isatty() and typer.confirm("Push?")


def _store_data(home: "Home", folder: Path, replace: bool) -> None:
    from assets.hub.contents import store_training_sets

    for name, rows in store_training_sets(home, folder, replace).items():
        typer.echo(f"{name}: {rows} rows")
    typer.echo(f"in {home.root}; `interleave run --select exports` writes the trainers' files")


def _register(home: "Home", folder: Path, source: str) -> None:
    from assets.hub.contents import register_checkpoint

    row = register_checkpoint(home, folder, source)
    typer.echo(f"{row.name}@{row.version} from {source}; `interleave checkpoints` lists it")
