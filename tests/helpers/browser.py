"""The Dagster UI and the service in processes, and a headless Chromium to use them with."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, Locator, Page, sync_playwright

from tests.helpers.ports import free_port

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Most of them stop Chromium's own network requests.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_SECONDS = 400  # for anything on a busy machine
_STATE = """{
  assetNodes { assetKey { path } assetMaterializations { partition } }
  runsOrError { ... on Runs { results { runId status } } }
}"""


@contextmanager
def dagster_ui(home: Path, profile: Path, variables: dict[str, str] | None = None) -> Iterator[str]:
    """`interleave ui` on a free port; its address, once it answers."""
    with _server("ui", home, profile, "/server_info", variables) as url:
        yield url


@contextmanager
def interleave_serve(home: Path, key: str | None = None) -> Iterator[str]:
    """`interleave serve` in the sketch world on a free port; its address, once it answers."""
    variables = {"INTERLEAVE_SERVICE_KEYS": key or ""}
    with _server("serve", home, Path("sketch"), "/health", variables) as url:
        yield url


def query_graphql(url: str, query: str) -> dict:
    """The data that the UI's GraphQL endpoint returns."""
    body = json.dumps({"query": query}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        return json.load(response)["data"]


Partitions = dict[str, list[str | None]]  # of the materializations of every asset, by its name


def materialized_partitions(url: str) -> tuple[Partitions, set[str]]:
    """The partitions of every asset's materializations, and the states of all runs."""
    state = query_graphql(url, _STATE)
    partitions = {
        node["assetKey"]["path"][0]: [m["partition"] for m in node["assetMaterializations"]]
        for node in state["assetNodes"]
    }
    return partitions, {run["status"] for run in state["runsOrError"]["results"]}


def wait_for_runs(url: str, done: Callable[[Partitions], bool]) -> Partitions:
    """Wait for materializations, and until all runs have succeeded."""
    deadline = time.monotonic() + 2 * TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        partitions, runs = materialized_partitions(url)
        assert not runs & {"FAILURE", "CANCELED"}, f"a run failed; so far: {partitions}"
        if done(partitions) and runs == {"SUCCESS"}:
            return partitions
        time.sleep(1)
    raise AssertionError(f"not materialized in time: {partitions}")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A headless Chromium. Nothing else may use an event loop in this thread meanwhile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_tab(
    browser: Browser, width: int = 1600, height: int = 1000, scale: float = 1
) -> Iterator[Page]:
    """A page with cookies and storage of its own."""
    size = {"width": width, "height": height}
    with browser.new_context(viewport=size, device_scale_factor=scale) as context:
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_SECONDS * 1000)
        # Suppresses the dialog that Dagster shows to new users.
        page.add_init_script("localStorage.setItem('communityNux', '1')")
        yield page


@contextmanager
def chromium(*size: int, **options: float) -> Iterator[Page]:
    """A page of a Chromium of its own."""
    with open_browser() as browser, open_tab(browser, *size, **options) as page:
        yield page


def lineage_path(groups: Iterable[str], selection: str = "*") -> str:
    """Path of the lineage of selected assets, with these groups expanded."""
    expanded = ",".join(f"global%40global%3A{group}" for group in groups)
    return f"/asset-groups~{quote(selection, safe='')}?expanded={expanded}"


def node_in_lineage(page: Page, name: str) -> Locator:
    """The box of an asset in the lineage, where long names are shortened in the middle."""
    shortened = rf"{name[:4]}\w*…\w*{name[-4:]}"
    return page.get_by_text(re.compile(f"^({name}|{shortened})$")).last


@contextmanager
def _server(
    command: str, home: Path, profile: Path, path: str, variables: dict[str, str] | None = None
) -> Iterator[str]:
    """One of our commands that serve HTTP, as soon as this path answers; stopped at the end."""
    port = free_port()
    log = home.with_name(f"{command}.log")
    with log.open("w") as out:
        process = subprocess.Popen(
            _command(command, home, profile, "--port", str(port)),
            env={**os.environ, **(variables or {})},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(url + path, process, log)
        yield url
    finally:
        _stop(process)


def _command(name: str, home: Path, profile: Path, *options: str) -> list[str]:
    program = [sys.executable, "-m", "dagster_project.cli.app", name]
    return [*program, "--home", str(home), "--profile", str(profile), *options]


def wait_until_ready(url: str, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.3)
    raise AssertionError(f"it did not start:\n{log.read_text()[-3000:]}")


def _stop(process: subprocess.Popen) -> None:
    """Stop a process with its children: with Ctrl-C first, as a user would."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(20)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
