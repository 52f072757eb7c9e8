"""A webhook that others post to."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WebhookServer(ThreadingHTTPServer):
    """Answers with its `statuses`, one after the other, then 200, after `pause` seconds; `lines` is
    what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lines: list[str] = []
        self.statuses: list[int] = []
        self.pause = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook-secret"


class _Handler(BaseHTTPRequestHandler):
    server: WebhookServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.lines.append(json.loads(body)["text"])
        time.sleep(self.server.pause)
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def webhook_server() -> Iterator[WebhookServer]:
    server = WebhookServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
