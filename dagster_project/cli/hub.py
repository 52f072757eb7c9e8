"""`interleave push` and `pull`: training sets and checkpoints on the Hugging Face Hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schemas import FoundryError

from .options import HomeOption, ProfileOption

if TYPE_CHECKING:
    from assets.hub.repository import Kind, PushPlan, Repository
    from warehouse import Home

_DATA = "data"

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
    from rich.filesize import decimal

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
    from rich.filesize import decimal

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
