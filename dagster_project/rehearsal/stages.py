"""The stages of a rehearsal, each brought up to date by `interleave run`'s own code; in the last
one the real service answers one request over HTTP."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import dagster as dg
import yaml

from assets.core.foundry import FoundryResource
from assets.core.node import Node
from assets.core.profile import load_profile
from inference.servers.instance import home_servers
from schemas import FoundryError
from schemas.training import CHECKPOINTS
from warehouse import Home

from ..instance import open_instance
from ..run import run_lineage
from ..stages import select_nodes
from .profile import REGISTRY, Rehearsal
from .provider import local_provider
from .report import Measured, Report, Stage, measured

REQUEST = "Draw a red house, then a tree beside it."
_READY_SECONDS, _ANSWER_SECONDS, _STOP_SECONDS = 300.0, 900.0, 60.0
_ADDRESS = re.compile(r"http://[^/\s]+/v1")
_READY = re.compile(r"^ready$", re.M)
# Stages of several assets, by their groups; those of other groups are stages of their own.
_STAGES = {
    "prompts": "prompts",
    "trajectories": "trajectories",
    **dict.fromkeys(("reviews", "imports", "data_sets"), "data sets"),
}
_VARIABLES = {"HF_HUB_OFFLINE": "1"}  # nothing is downloaded


def rehearse(
    profile: str, folder: Path, prompts: int, announce: Callable[[str], object] = str
) -> Report:
    """Rehearse a profile in a new home; nothing that it started is left running.

    Args:
        folder: of the home, with the rehearsal's own profile and models; empty.
        announce: gets a line when a stage begins.

    Raises:
        FoundryError: the profile cannot be read, or no tiny model can be made for it.
    """
    home = Home(str(folder / "home"))
    with ExitStack() as stack:
        stack.enter_context(_variables())
        rehearsal = Rehearsal(
            load_profile(profile), folder, stack.enter_context(local_provider()), prompts
        )
        with measured(home) as making:
            announce("tiny models")
            path = _write(rehearsal)
            foundry = FoundryResource(profile=str(path), root=home.root)
            made = [s.after for s in rehearsal.substitutions if s.path == "models"]
        first = Stage("tiny models", ", ".join(made) or "none is needed", making)
        instance = stack.enter_context(open_instance(home))
        stack.callback(stop_servers, home)
        stages = [first, *_stages(foundry, instance, path, announce)]
    return Report(foundry.settings.name, home, tuple(stages), tuple(rehearsal.substitutions))


def stop_servers(home: Home) -> None:
    """End the servers of a home, and wait until they have ended."""
    folders = [folder for folder in home_servers(home) if folder.is_supervised]
    for folder in folders:
        folder.stop()
    deadline = time.monotonic() + _STOP_SECONDS
    while any(folder.is_supervised for folder in folders) and time.monotonic() < deadline:
        time.sleep(0.2)


@contextmanager
def _variables() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(_VARIABLES)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _write(rehearsal: Rehearsal) -> Path:
    """The rehearsal's profile as a file, its tiny models beside it."""
    path = rehearsal.folder / "profile.yaml"
    values = rehearsal.rewrite()
    registry = yaml.safe_dump(rehearsal.registry, sort_keys=False)
    (rehearsal.folder / REGISTRY).write_text(registry, "utf-8")
    path.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), "utf-8")
    return path


def _stages(
    foundry: FoundryResource,
    instance: dg.DagsterInstance,
    profile: Path,
    announce: Callable[[str], object],
) -> Iterator[Stage]:
    """Up to the first that fails."""

    def lineage(nodes: list[Node]) -> Callable[[], str]:
        def run() -> str:
            run_lineage(foundry, instance, foundry.shards, [node.name for node in nodes])
            return _made(foundry, nodes)

        return run

    runs = {
        name: lineage(nodes) for name, nodes in lineage_stages(select_nodes([], foundry.settings))
    }
    runs["service"] = lambda: answer_a_request(profile, foundry.home)
    for name, run in runs.items():
        announce(name)
        stage = _run(name, run, foundry.home)
        yield stage
        if stage.failed:
            return


def lineage_stages(nodes: Sequence[Node]) -> list[tuple[str, list[Node]]]:
    """The nodes by stage; every stage follows those that its nodes depend on."""
    stage_of = {node.name: _STAGES.get(node.group, node.name) for node in nodes}
    stages: dict[str, list[Node]] = {}
    upstream: dict[str, set[str]] = {}
    for node in nodes:
        name = stage_of[node.name]
        stages.setdefault(name, []).append(node)
        deps = {stage_of[dep] for dep in node.deps if dep in stage_of}
        upstream.setdefault(name, set()).update(deps - {name})
    return [(name, stages[name]) for name in TopologicalSorter(upstream).static_order()]


def _run(name: str, run: Callable[[], str], home: Home) -> Stage:
    stage = Stage(name, "", Measured())
    with measured(home) as taken:
        try:
            stage = replace(stage, ran=run())
        except FoundryError as error:
            stage = replace(stage, ran=str(error), failed=True)
        except Exception as error:  # a bug: the table is shown all the same
            traceback.print_exc()
            stage = replace(stage, ran=f"{type(error).__name__}: {error}", failed=True)
    return replace(stage, measured=taken)


def _made(foundry: FoundryResource, nodes: list[Node]) -> str:
    """Rows by table; of checkpoints their versions and whether they are promoted."""
    if nodes[0].group == "checkpoints":
        rows = foundry.rows(CHECKPOINTS)
        own = [row for row in rows if row.name in {node.name for node in nodes}] or rows
        return ", ".join(f"{row.name} {row.version}: {row.status}" for row in own)
    tables = {node.tables[0].name: node.tables[0] for node in nodes if node.tables}
    rows_of = foundry.home.lake.rows
    return ", ".join(f"{rows_of(table)} {name}" for name, table in tables.items())


def answer_a_request(profile: Path, home: Home) -> str:
    """What was answered, and by whom, in a few words.

    Raises:
        FoundryError: the service does not start, or its answer is not complete.
    """
    log = home.local / "service.log"
    arguments = ["serve", "--profile", str(profile), "--home", home.root, "--port", "0"]
    command = [sys.executable, "-m", "dagster_project.cli.app", *arguments]
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as server,
    ):
        try:
            return _ask(_address(server, log), log)
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()


def _address(server: "subprocess.Popen[bytes]", log: Path) -> str:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        text = log.read_text("utf-8", "replace")
        if (address := _ADDRESS.search(text)) and _READY.search(text):
            return address[0]
        time.sleep(0.2)
    raise FoundryError(f"the service did not become ready (log: {log})")


def _ask(address: str, log: Path) -> str:
    body = json.dumps({"input": REQUEST}).encode()
    request = Request(f"{address}/responses", body, {"content-type": "application/json"})
    try:
        with urlopen(request, timeout=_ANSWER_SECONDS) as reply:
            response = json.load(reply)
    except HTTPError as error:
        raise FoundryError(f"the service answered {error.code} (log: {log})") from error
    status = response["interleave"]["status"]
    if response["status"] not in ("completed", "incomplete"):
        raise FoundryError(f"the request ended as {status}: {response['error']} (log: {log})")
    kinds = [item["type"] for item in response["output"]]
    images, agents = kinds.count("image_generation_call"), response["interleave"]["versions"]
    named = f"{agents['planner']} and {agents['critic']}"
    return f"{status}, {images} images and {len(kinds) - images} texts, by {named}"
