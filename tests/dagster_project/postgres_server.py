"""A real Postgres of one's own, from Debian's package, for as long as a test lasts."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.ports import free_port

PASSWORD = "not-to-be-seen-anywhere"


def postgres_cluster(port: int) -> dict[str, Any]:
    """Section `cluster` of a profile whose history is there; the password is in $THE_PASSWORD."""
    server = {"host": "127.0.0.1", "port": port, "user": "foundry", "database": "postgres"}
    return {"postgres": {**server, "password": "THE_PASSWORD"}, "runs": 2}


@contextmanager
def postgres() -> Iterator[int]:
    """Its port; the test is skipped where there is no Postgres to start."""
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    # The server refuses to run as root; Debian's package brings a user for it.
    user = "postgres" if os.getuid() == 0 else None
    (folder / "password").write_text(PASSWORD)
    if user:
        for path in (folder, folder / "password"):
            shutil.chown(path, user)
    data, port = folder / "data", free_port()
    server = f"-p {port} -h 127.0.0.1 -k {folder} -c fsync=off"
    auth = ["-U", "foundry", "-A", "scram-sha-256", f"--pwfile={folder}/password"]
    try:
        _run([programs / "initdb", "-D", data, *auth], user)
        _run(
            [programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", server, "start"],
            user,
        )
        yield port
    finally:
        _run([programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"], user, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    if found := sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")):
        return found[-1].parent
    if found_here := shutil.which("pg_ctl"):
        return Path(found_here).resolve().parent
    pytest.skip("no Postgres here: install Debian's package `postgresql` to run this test")


def _run(command: list[object], user: str | None, check: bool = True) -> None:
    # Not a pipe: the server that pg_ctl leaves behind would keep it open.
    subprocess.run(
        [str(part) for part in command],
        user=user,
        check=check,
        cwd="/",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=120,
    )
