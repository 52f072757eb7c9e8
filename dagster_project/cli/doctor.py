"""`interleave doctor`: what a profile needs and does not find."""

import typer

from .options import HomeOption, ProfileOption


def doctor(profile: ProfileOption = "sketch", home: HomeOption = ".interleave") -> None:
    """List what a profile needs and is missing here; exit status 1 if anything is."""
    from ..doctor import report

    raise typer.Exit(0 if report(profile, home) else 1)
