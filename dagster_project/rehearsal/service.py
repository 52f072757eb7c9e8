"""The last stage: the real service answers one request over HTTP."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from schemas import FoundryError
from warehouse import Home

REQUEST = "Draw a red house, then a tree beside it."
_READY_SECONDS, _ANSWER_SECONDS, _STOP_SECONDS = 300.0, 900.0, 60.0
_ADDRESS = re.compile(r"http://[^/\s]+/v1")
_READY = re.compile(r"^ready$", re.M)


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
