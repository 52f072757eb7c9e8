"""The `interleave` command in this process: its output and exit status, as a shell gets them."""

import sys
from subprocess import CompletedProcess

import pytest

from dagster_project.cli.app import main

# As a process of its own, for signals and for what must not share this process.
INTERLEAVE = [sys.executable, "-m", "dagster_project.cli.app"]


def interleave(capsys, *args: object, **environment: str) -> CompletedProcess[str]:
    """Run the command; Dagster's home, which it sets, is forgotten afterwards."""
    words = [str(arg) for arg in args]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["interleave", *words])
        patch.setenv("DAGSTER_HOME", "unset")
        patch.delenv("DAGSTER_HOME")
        for name, value in {"COLUMNS": "200", **environment}.items():
            patch.setenv(name, value)
        capsys.readouterr()
        try:
            main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
    output, errors = capsys.readouterr()
    return CompletedProcess(words, status, output, errors)
