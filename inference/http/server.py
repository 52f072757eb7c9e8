"""A server: its port, signals that stop it, clients that are idle or leave, its metrics."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..roles import BackendError

Result = TypeVar("Result")

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
"""Bounds of the buckets of histograms."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BACKLOG = 2048
_TICKS_PER_CHECK = 5  # of ten a second
_MAX_HEADERS = 100
_MAX_HEAD_BYTES = 64 * 1024
_KEEP_ALIVE_SECONDS = 75  # longer than clients keep connections, which would else send into an end
_MAX_REST_BYTES = 128 * 2**20


class MetricsRegistry:
    """Metrics of one server. `seconds`: default bounds of the buckets of its histograms."""

    def __init__(self, prefix: str, seconds: Sequence[float] = SECONDS) -> None:
        self._registry = CollectorRegistry()
        self.counter = partial(Counter, namespace=prefix, registry=self._registry)
        self.gauge = partial(Gauge, namespace=prefix, registry=self._registry)
        self.histogram = partial(
            Histogram, namespace=prefix, registry=self._registry, buckets=seconds
        )

    def exposition(self) -> Response:
        """All metrics, as Prometheus reads them."""
        return Response(generate_latest(self._registry), media_type=_METRICS_TYPE)


class HTTPServer(uvicorn.Server):
    """uvicorn, which also closes idle connections and leaves the process's signals as they were.

    Args:
        idle_seconds: in which the head of a request has to arrive, and after a response the rest
            of its request; uvicorn would wait on.
        grace_seconds: for responses under way when the server stops.
        handle_signals: SIGINT and SIGTERM stop the server (in the main thread only).
        message_bytes: of a WebSocket's message at most; None: the server has none.
    """

    def __init__(
        self,
        app: ASGIApp,
        idle_seconds: float,
        grace_seconds: int,
        handle_signals: bool = True,
        message_bytes: int | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=_HTTPProtocol,
            ws="none" if message_bytes is None else "websockets-sansio",
            ws_max_size=message_bytes or 0,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=grace_seconds,
        )
        super().__init__(config)
        self._idle_seconds, self._handle_signals = idle_seconds, handle_signals
        # Connection -> its last request, whether it sends another, and since when both is so.
        self._idle: WeakKeyDictionary[Any, tuple[object, bool, float]] = WeakKeyDictionary()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if counter % _TICKS_PER_CHECK == 0:
            self._close_idle_connections()
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but does not raise the signals again after the server has stopped."""
        if not self._handle_signals or threading.current_thread() is not threading.main_thread():
            yield
            return
        with _signals_handled_by(self.handle_exit):
            yield

    def _close_idle_connections(self) -> None:
        now = monotonic()
        connections: list[Any] = list(self.server_state.connections)
        for connection in connections:
            if not isinstance(connection, _HTTPProtocol):
                continue  # a WebSocket, which has its own pings
            last = connection.cycle  # the last request with its response
            if last is not None and not last.response_complete:
                self._idle.pop(connection, None)
                continue
            sends = last is None or connection.is_receiving
            *before, since = self._idle.get(connection, (last, sends, now))
            since = since if before == [last, sends] else now
            self._idle[connection] = (last, sends, since)
            if now - since > (self._idle_seconds if sends else _KEEP_ALIVE_SECONDS):
                connection.transport.close()


class _HTTPProtocol(HttpToolsProtocol):
    """uvicorn's, with limits: a head that is larger gets 400, however it arrives.

    Where the response comes before the request has ended, the rest is read up to a limit, so that
    the client sees the response: closed while it still sends, the connection would be reset.
    """

    is_receiving = False  # a request has begun, and not ended
    _closes = False  # the connection, after this request
    _progress = False
    _head_bytes = 0  # that were parsed
    _pending_bytes = 0  # since a head or a part of a body was complete
    _rest_bytes = 0  # since the response

    def data_received(self, data: bytes) -> None:
        self._progress = False
        super().data_received(data)
        self._pending_bytes = 0 if self._progress else self._pending_bytes + len(data)
        answered = self.cycle is None or self.cycle.response_complete
        self._rest_bytes = self._rest_bytes + len(data) if answered and self.is_receiving else 0
        if self.transport.is_closing():
            return
        if self._pending_bytes > _MAX_HEAD_BYTES and answered:
            self.send_400_response("The head of the request is too large.")
        elif self._pending_bytes > _MAX_HEAD_BYTES or self._rest_bytes > _MAX_REST_BYTES:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.is_receiving, self._head_bytes = True, 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._progress = True
        super().on_headers_complete()
        if self.cycle is None:  # it becomes a WebSocket
            return
        self._closes = not self.cycle.keep_alive
        self.cycle.keep_alive = True  # until the request has ended

    def on_body(self, body: bytes) -> None:
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._progress, self.is_receiving = True, False
        super().on_message_complete()
        if self._closes and self.cycle.response_complete:
            self.transport.close()
        elif self._closes:
            self.cycle.keep_alive = False

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > _MAX_HEAD_BYTES or len(self.headers) > _MAX_HEADERS:
            raise ValueError("the head is too large")  # the parser stops, uvicorn answers 400


@contextmanager
def listening_socket(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens; connections wait until a server accepts them. Port 0: any free one.

    Raises:
        BackendError: the port is taken, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise BackendError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --host or --port"
        ) from error
    with listener:
        # asyncio sets it only on sockets of protocol TCP by name; accepted sockets inherit it.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listener


@contextmanager
def shutdown_signals() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, and neither is an error."""
    with suppress(KeyboardInterrupt), _signals_handled_by(interrupt):
        yield


async def run_while_connected(
    request: Request, work: Coroutine[Any, Any, Result], timeout: float | None = None
) -> Result:
    """The result of `work`, which is cancelled when the client disconnects or time is up.

    The request's body has to be read before. `timeout`: in seconds.

    Raises:
        ClientDisconnect, TimeoutError.
    """
    working = asyncio.create_task(work)
    disconnect = asyncio.create_task(_wait_disconnect(request))
    try:
        await asyncio.wait({working, disconnect}, timeout=timeout, return_when="FIRST_COMPLETED")
        if working.done():
            return working.result()
        raise ClientDisconnect if disconnect.done() else TimeoutError
    finally:
        working.cancel()
        disconnect.cancel()


async def _wait_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def interrupt(number: int, frame: object) -> None:
    """A handler of signals that ends what runs as Ctrl-C does."""
    raise KeyboardInterrupt


def handle_signals(handler: Callable[[int, Any], object] | signal.Handlers) -> dict[int, Any]:
    """Set the handler of SIGINT and SIGTERM; the earlier ones are returned."""
    return {number: signal.signal(number, handler) for number in _SIGNALS}


@contextmanager
def _signals_handled_by(handler: Callable[[int, Any], object]) -> Iterator[None]:
    before = handle_signals(handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
