"""A real Dagster UI on a lake of one's own, and a headless Chromium to use it with."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Locator, Page, sync_playwright

from tests.helpers.ports import free_port

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Most of them keep Chromium from asking the network for things of its own.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 180  # seconds that something may take on a busy machine
TINY_PROFILE = """
    name: tiny
    description: Two shards of a few prompts, small pictures
    roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}
    pack: sketchbook
    sizes: {demo: 2}
    bank: {shard_size: 12}
    sketch: {picture_size: 96}
"""


def interleave(command: str, home: Path, profile: Path, *options: str) -> None:
    """Run one of our commands to its end."""
    subprocess.run(
        _command(command, home, profile, *options), check=True, stdout=subprocess.DEVNULL
    )


@contextmanager
def dagster_ui(home: Path, profile: Path) -> Iterator[str]:
    """`interleave ui` on a free port; its address, once it answers."""
    port = free_port()
    log = home.with_name("ui.log")
    with log.open("w") as out:
        command = _command("ui", home, profile, "--port", str(port))
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield _answering(f"http://127.0.0.1:{port}", "/server_info", process, log)
    finally:
        _end(process)


@contextmanager
def interleave_serve(home: Path, key: str | None = None) -> Iterator[str]:
    """`interleave serve` on a free port, in the sketch world; its address, once it answers."""
    port = free_port()
    log = home.with_name("service.log")
    with log.open("w") as out:
        process = subprocess.Popen(
            _command("serve", home, Path("sketch"), "--port", str(port)),
            env={**os.environ, "INTERLEAVE_SERVICE_KEYS": key or ""},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield _answering(f"http://127.0.0.1:{port}", "/health", process, log)
    finally:
        _end(process)


@contextmanager
def tiny_ui(folder: Path, made: str) -> Iterator[str]:
    """The UI on a new lake of two small shards, where the command line made some assets before."""
    home, profile = folder / "home", folder / "tiny.yaml"
    profile.write_text(textwrap.dedent(TINY_PROFILE))
    interleave("run", home, profile, "--select", made)
    with dagster_ui(home, profile) as url:
        yield url


def ask(url: str, query: str) -> dict:
    """What the UI's GraphQL endpoint answers."""
    body = json.dumps({"query": query}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)["data"]


@contextmanager
def chromium(width: int = 1600, height: int = 1000, scale: float = 1) -> Iterator[Page]:
    """A page of a headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(
            viewport={"width": width, "height": height}, device_scale_factor=scale
        )
        page.set_default_timeout(PATIENCE * 1000)
        # As if the dialog with which Dagster greets new users had been seen before.
        page.add_init_script("localStorage.setItem('communityNux', '1')")
        try:
            yield page
        finally:
            browser.close()


def lineage_path(groups: list[str]) -> str:
    """The lineage with these groups of assets unfolded."""
    unfolded = ",".join(f"global%40global%3A{group}" for group in groups)
    return f"/asset-groups?expanded={unfolded}"


def node_in_lineage(page: Page, name: str) -> Locator:
    """The box of an asset in the lineage, where long names have their middle cut out."""
    cut = rf"{name[:4]}\w*…\w*{name[-4:]}"
    return page.get_by_text(re.compile(f"^({name}|{cut})$")).last


def _command(name: str, home: Path, profile: Path, *options: str) -> list[str]:
    program = [sys.executable, "-m", "dagster_project.cli.app", name]
    return [*program, "--home", str(home), "--profile", str(profile), *options]


def _answering(url: str, path: str, process: subprocess.Popen, log: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url + path, timeout=5).close()
            return url
        except OSError:
            time.sleep(0.3)
    raise AssertionError(f"it did not start:\n{log.read_text()[-3000:]}")


def _end(process: subprocess.Popen) -> None:
    """End the UI with everything it started: Ctrl-C first, as a person would."""
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(20)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
