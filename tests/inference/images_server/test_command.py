"""`interleave generator serve`: a laptop's server from start to end, and its errors."""

import os
import re
import signal
import socket
import subprocess
import sys
import uuid

import openai
import pytest
from typer.testing import CliRunner

from dagster_project.cli.app import app
from inference.images_server import app as images_app
from inference.images_server.app import KEY, serve_images
from inference.images_server.models import ImagesServerSettings
from inference.servers.processes import find_marked
from inference.sketch_world import generator as sketch_generator
from schemas import FoundryError
from tests.inference.images_server.served_images import images_of, until

ROOT = __file__.partition("/tests/")[0]
MARK = "INTERLEAVE_TEST_SERVER"
MEADOW = "Draw a meadow with a red flower at the bottom center."


def serve(model="sketch", registry=None, **settings):
    serve_images(model, registry, ImagesServerSettings(**settings), print)


def test_startup_errors_are_one_line(monkeypatch, tmp_path):
    monkeypatch.delenv(KEY, raising=False)
    with pytest.raises(FoundryError, match="no generator 'dall-e'; there are: qwen-image,"):
        serve("dall-e")
    with pytest.raises(FoundryError, match="omnigen2 is not for backend diffusers"):
        serve("omnigen2")
    with pytest.raises(FoundryError, match=r"own\.yaml: cannot be read"):
        serve("tiny", tmp_path / "own.yaml")
    with pytest.raises(FoundryError, match=f"can be reached from other machines: set {KEY}"):
        serve(host="0.0.0.0")


def test_missing_ray_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(images_app, "find_spec", lambda package: None)
    with pytest.raises(FoundryError, match="images servers need Ray: run `make cluster`"):
        serve()


def test_taken_port_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FoundryError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            serve(port=port)


def test_help_lists_the_options():
    help_ = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["generator", "serve", "--help"]).output
    plain = re.sub(r"\x1b\[[\d;]*m", "", help_)
    for option in ("replicas", "host", "port", "batch", "queue", "device", "ray", "registry"):
        assert f"--{option}" in plain


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("stop_signal", [signal.SIGTERM, signal.SIGINT])
def test_sketch_is_served_until_a_signal(tmp_path, stop_signal):
    mark, log = uuid.uuid4().hex, tmp_path / "log"
    command = [sys.executable, "-m", "dagster_project.cli.app", "generator", "serve"]
    environment = {**os.environ, MARK: mark, "PYTHONPATH": ROOT}
    with log.open("w") as out:
        server = subprocess.Popen(
            [*command, "sketch", "--port", "0"], stdout=out, stderr=out, env=environment
        )
    try:
        until(lambda: "ready, 1 of 1 replicas" in log.read_text() or server.poll() is not None)
        assert server.poll() is None, log.read_text()
        address = re.search(r"http://\S+/v1", log.read_text())[0]
        images = openai.OpenAI(base_url=address, api_key="none").images
        answer = images.generate(prompt=MEADOW, extra_body={"seed": 1})
        assert images_of(answer) == [sketch_generator.draw(MEADOW, (), 1)]
        server.send_signal(stop_signal)
        assert server.wait(120) == 0, log.read_text()
    finally:
        server.kill()
        server.wait()
    until(lambda: not find_marked(MARK, mark))
    assert "Traceback" not in log.read_text()
