"""A server of the images API in a few lines, and clients of it, as processes of their own.

`python toy_model.py serve HOST PORT` answers every request with a red line. `python toy_model.py
use HOME CHANGES` makes a call through a profile, prints the server's process, and stays.
"""

import asyncio
import base64
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from inference.servers import hosts
from warehouse import EncodedImage, Home

QUICK_SUPERVISOR = "tests.inference.servers.quick_supervisor"
RED = (255, 0, 0)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/health":
            self._answer({})
        else:
            self.send_error(404)

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        if self.headers["authorization"] != f"Bearer {os.environ['INTERLEAVE_SERVER_KEY']}":
            self.send_error(401)
            return
        from PIL import Image

        # The picture's width says which process drew it.
        image = EncodedImage.of(Image.new("RGB", (os.getpid() % 4096 + 1, 1), RED))
        self._answer({"created": 1, "data": [{"b64_json": base64.b64encode(image.data).decode()}]})

    def _answer(self, content):
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def profile(idle_seconds=60, gpus=(), **changes):
    """The settings of a generator that is such a server."""
    command = [sys.executable, str(Path(__file__)), "serve", "{host}", "{port}"]
    server = {"kind": "command", "model": "toy", "command": command, "gpus": list(gpus)}
    return {
        "roles": dict.fromkeys(("planner", "critic", "scorer"), "sketch") | {"generator": "images"},
        "servers": {"toy": server | {"idle_seconds": idle_seconds} | changes},
        "images": {"endpoints": [{"server": "toy"}], "generator": {"model": "toy"}},
    }


def generator(root, **settings):
    """The generator of a home's profile."""
    from inference.backends.factory import Backends

    return Backends.model_validate(profile(**settings)).build(Home(root)).generator


def draw(root, **settings):
    """One call; returns the last digits of the process that answered."""

    async def call():
        image = await generator(root, **settings).generate("a red pixel", (), 1)
        return image.image.width - 1

    return asyncio.run(call())


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), _Handler).serve_forever()
    hosts.SUPERVISOR = QUICK_SUPERVISOR
    print(draw(sys.argv[2], **json.loads(sys.argv[3])), flush=True)
    time.sleep(60)
