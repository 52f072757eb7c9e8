"""An HTTP proxy in front of an S3 server that answers a share of the requests with 503 SlowDown."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)
_HOP = {"transfer-encoding", "connection", "content-length", "date", "server"}


class Throttle:
    """Which requests are throttled, by a seeded generator, and counts of both kinds."""

    def __init__(self, share: float) -> None:
        self.share, self.answered, self.throttled = share, 0, 0
        self._random, self._lock = random.Random(5), threading.Lock()

    def next(self) -> bool:
        with self._lock:
            throttle = self._random.random() < self.share
            self.throttled += throttle
            self.answered += not throttle
            return throttle


@contextmanager
def throttling_proxy(upstream: str, throttle: Throttle) -> Iterator[str]:
    """The proxy's URL."""
    host = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if throttle.next():
                content = b"" if self.command == "HEAD" else SLOW_DOWN
                self._answer(503, {"Content-Type": "application/xml"}, content)
                return
            connection = HTTPConnection(host)
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            headers = dict(answer.getheaders())
            self._answer(answer.status, headers, content)
            connection.close()

        def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            is_head = self.command == "HEAD"
            length = headers.get("Content-Length", "0") if is_head else str(len(content))
            self.send_header("Content-Length", length)
            self.end_headers()
            if not is_head:
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
        setattr(Handler, f"do_{method}", Handler._forward)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
