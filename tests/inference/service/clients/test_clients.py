"""Existing clients, unmodified, in environments of their own, against a running service.

Each is installed from its pinned requirements, and makes the calls of its script in `scripts/`.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from inference.environments.installers import clean_variables, install
from schemas import FoundryError
from tests.inference.service.clients.compatibility import CLIENTS, FOLDER, Client, recorded

pytestmark = [pytest.mark.slow, pytest.mark.long]

SECONDS = 300
# What uv, pip and npm log where there is no network.
UNREACHABLE = re.compile(
    r"dns error|error sending request|NewConnectionError|NameResolutionError|ConnectTimeout|"
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH"
)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.title)
def test_calls_end_as_the_tables_say(service, client, tmp_path):
    command = (_node if client.is_node else _python)(client, tmp_path)
    done = subprocess.run(
        [*command, f"{service.url}/v1"],
        cwd=tmp_path,
        env=clean_variables() | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == recorded()[client.title]


def _python(client: Client, folder: Path) -> list[str]:
    """The command of a script, in an environment with its client."""
    log = folder / "install.log"
    try:
        install(folder / "venv", client.requirements, log, print)
    except FoundryError:
        _skip_if_unreachable(log.read_text())
        raise
    return [str(folder / "venv" / "bin" / "python"), str(FOLDER / "scripts" / client.script)]


def _node(client: Client, folder: Path) -> list[str]:
    if not (npm := shutil.which("npm")):
        pytest.skip("Node and npm are not installed")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(client.requirements.with_name(name), folder)
    for script in (client.script, "calls.mjs"):
        shutil.copy(FOLDER / "scripts" / script, folder)
    install_packages = [npm, "ci", "--no-audit", "--no-fund"]
    done = subprocess.run(install_packages, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        _skip_if_unreachable(done.stderr)
        pytest.fail(done.stderr[-3000:])
    return ["node", client.script]


def _skip_if_unreachable(log: str) -> None:
    if UNREACHABLE.search(log):
        pytest.skip(f"the package registry cannot be reached: {log.strip()[-200:]}")
