"""`interleave prompts import`: agent prompts of the authors' repository, or of one's own."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Prompts that agents are asked with.")


@app.callback()
def prompts() -> None:
    """Prompts that agents are asked with."""


@app.command("import")
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
    from inference.agent_prompts.importing import import_prompts
    from inference.agent_prompts.templates import version_of

    for path in import_prompts(source, out):
        typer.echo(f"{path}  {version_of(str(path))}")
