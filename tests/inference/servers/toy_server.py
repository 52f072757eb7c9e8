"""A substitute for vLLM where only its process matters.

usage: toy_server.py PORT [dies|engine dies|stubborn|engine]
"""

import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

STRAY = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()


def main(port: str, mode: str = "") -> None:
    print("(APIServer pid=7) INFO 11-21 22:00:00 [loader.py:42] Loading weights", flush=True)
    if mode == "dies":
        raise ValueError("these weights do not fit")
    if mode == "engine dies":
        print("(Worker pid=8) ERROR 11-21 22:00:01 [executor.py:9] a.b.LoadError: too short")
        raise RuntimeError("Engine core initialization failed. See root cause above.")
    pids = [os.getpid()]
    if mode == "stubborn":  # as is a child in a session of its own
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stray = subprocess.Popen([sys.executable, "-c", STRAY], start_new_session=True)
        pids.append(stray.pid)
    if mode == "engine":  # which has lost its mark, as vLLM's by its title
        pids.append(subprocess.Popen([sys.executable, "-c", STRAY], env={}).pid)
    time.sleep(1.0)
    Path("pids").write_text(" ".join(map(str, pids)))
    HTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


main(*sys.argv[1:])
