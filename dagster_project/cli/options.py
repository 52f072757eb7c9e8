"""Options that several commands share."""

import signal
from typing import Annotated

import typer

ProfileOption = Annotated[
    str, typer.Option(envvar="INTERLEAVE_PROFILE", help="Profile name, or path of a YAML file.")
]
HomeOption = Annotated[
    str, typer.Option(envvar="INTERLEAVE_HOME", help="Folder or fsspec URL of the lake.")
]


def enable_interrupts() -> None:
    """Obey SIGINT also where a shell disabled it, as it does for commands in the background.

    Dagster treats SIGTERM as SIGINT, so that this is needed for either.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
