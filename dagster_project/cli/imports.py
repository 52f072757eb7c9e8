"""`interleave import` and `prompts import`: data and agent prompts of other people."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from .options import HomeOption, enable_interrupts

if TYPE_CHECKING:
    from assets.imports.importer import ImportResult
    from inference.calls.progress import Progress
    from schemas.curation import ImportKind

imports_app = typer.Typer(
    no_args_is_help=True,
    help="Import prompts and training rows of other people, with origin and licence.",
)

FileArgument = Annotated[
    str, typer.Argument(help="File, or datasets/OWNER/NAME[@REVISION]/FILE of the Hub.")
]
ImagesOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the images; default: that of the file. The end of a path counts."
    ),
]
LicenseOption = Annotated[str, typer.Option(help="Licence of the data, for tables and cards.")]
NameOption = Annotated[str, typer.Option(help="Name of the import; default: that of the file.")]


@imports_app.command()
def prompts(
    file: FileArgument,
    to: Annotated[
        Path | None, typer.Option(help="Folder of the pack; default: packs/ and the file's name.")
    ] = None,
    images: ImagesOption = None,
    license: LicenseOption = "not stated",
    text: Annotated[str, typer.Option(help="Column with the prompt.")] = "user_input",
    image: Annotated[str, typer.Option(help="Column with its images.")] = "user_input_image",
    category: Annotated[str, typer.Option(help="Column with its category.")] = "category",
    reader: Annotated[
        Literal["sketch"] | None,
        typer.Option(help="`sketch`: the prompts are about the sketch world."),
    ] = None,
    home: HomeOption = ".interleave",
) -> None:
    """Make a prompt pack of a file: JSON, JSON lines, CSV or Parquet.

    Name the folder as `pack` in a profile; `docs/imports.md` has an example.
    """
    from assets.imports.importer import PromptColumns, import_prompts
    from assets.imports.source import open_source
    from assets.prompts.file_pack import PackInfo
    from warehouse import Home

    source = open_source(Home(home), file, images)
    folder = to or Path("packs") / source.path.stem
    info = PackInfo(
        title=source.path.stem,
        source=source.label,
        file_sha256=source.sha256,
        licence=license,
        reader=reader,
    )
    columns = PromptColumns(text, image, category)
    result = _run(
        "prompts", lambda progress: import_prompts(source, folder, info, columns, progress)
    )
    result.write_rejected(folder / "rejected.jsonl")
    _report(result, f"prompts in {folder}", folder / "rejected.jsonl")
    typer.echo(f"Use them with `pack: {folder}` in a profile.")


def _rows_command(kind: "ImportKind") -> Callable[..., None]:
    """The command that imports rows of a training set."""

    def command(
        file: FileArgument,
        name: NameOption = "",
        images: ImagesOption = None,
        license: LicenseOption = "not stated",
        home: HomeOption = ".interleave",
    ) -> None:
        from assets.imports.importer import import_rows
        from assets.imports.source import open_source
        from warehouse import Home

        lake = Home(home)
        source = open_source(lake, file, images)
        chosen = name or source.path.stem
        result = _run(
            chosen, lambda progress: import_rows(lake, kind, source, chosen, license, progress)
        )
        rejected = lake.local / "imports" / f"{chosen}-rejected.jsonl"
        result.write_rejected(rejected)
        unchanged = " (unchanged)" if result.unchanged else ""
        _report(result, f"rows of {kind} as {chosen}{unchanged}", rejected)
        mix = f"{{exports: {{mix: {{{kind}: {{{chosen}: 1}}}}}}}}"
        typer.echo(f"Train on them with `curation: {mix}`.")

    return command


_ROWS: "dict[ImportKind, str]" = {
    "planner_sft": "Import plans to learn, in LLaMA-Factory's form, such as `planner_sft.json`.",
    "critic_sft": "Import verdicts to learn, in LLaMA-Factory's form, such as `critic_sft.json`.",
    "critic_rl": "Import prompts of GRPO with their ground truth, such as `critic_rl.jsonl`.",
}
for _kind, _help in _ROWS.items():
    imports_app.command(_kind.replace("_", "-"), help=_help)(_rows_command(_kind))


def _run(label: str, work: "Callable[[Progress], ImportResult]") -> "ImportResult":
    from .run_screen import terminal_progress

    enable_interrupts()
    with terminal_progress(Console(stderr=True)) as progress:
        return work(progress(label))


def _report(result: "ImportResult", what: str, rejected: Path) -> None:
    typer.echo(f"{result.rows} {what}")
    if result.rejected:
        number, reason = next(iter(result.rejected.items()))
        typer.echo(f"{len(result.rejected)} rejected, such as row {number}: {reason} ({rejected})")


prompts_app = typer.Typer(no_args_is_help=True, help="Prompts that agents are asked with.")


@prompts_app.callback()
def group_prompts() -> None:
    """Prompts that agents are asked with."""


@prompts_app.command("import")
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Your checkout of the authors' repository, or a folder of Jinja files.",
            exists=True,
            file_okay=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder to write to; profile `released` reads this one.")
    ] = Path("prompts/released"),
) -> None:
    """Write the prompts of planner and critic as files that a profile can name.

    Code in the folder is read, never executed.
    """
    from inference.agent_prompts.templates import import_prompts, version_of

    for path in import_prompts(source, out):
        typer.echo(f"{path}  {version_of(str(path))}")
