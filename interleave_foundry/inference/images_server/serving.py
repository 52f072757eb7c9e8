"""`interleave generator serve`: from a model's name to a server that leaves nothing behind."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from ..roles import BackendError
from .fleet import Readiness, deployed
from .models import find_served
from .settings import ImagesServerSettings

KEY = "INTERLEAVE_IMAGES_KEY"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve_images(
    reference: str,
    registry: Path | None,
    settings: ImagesServerSettings,
    tell: Callable[[str], object],
) -> None:
    """Serve a model until Ctrl-C or TERM; what is under way then may be finished.

    Args:
        reference: see `find_served`.
        tell: hears in a line each what happens.

    Raises:
        FoundryError: no such model, port taken, Ray not installed or not there, no key.
    """
    model = find_served(reference, registry)
    if find_spec("ray") is None:
        raise BackendError("images servers need Ray: run `make cluster`")
    key = key_for(settings)
    with _listening(settings) as door, _until_told_to_end():
        port = door.getsockname()[1]
        tell(f"{model.name}: starting; http://{settings.host}:{port}/v1 will be its address")
        with deployed(model, settings, f"images-{socket.gethostname()}-{port}") as fleet:
            _hear_signals()  # Ray has handlers of its own
            import uvicorn

            from .app import make_app

            app = make_app(model, fleet, settings, key, lambda seen: tell(_told(seen)))
            config = uvicorn.Config(
                app,
                log_level="warning",
                server_header=False,
                timeout_graceful_shutdown=settings.grace_seconds,
            )
            try:
                uvicorn.Server(config).run(sockets=[door])
            finally:
                tell("stopping")
                _hear_no_signals()


def key_for(settings: ImagesServerSettings) -> str | None:
    """What callers have to know, from the environment.

    Raises:
        BackendError: it would listen beyond this machine without a key.
    """
    key = os.environ.get(KEY) or None
    if key is None and not settings.on_loopback:
        raise BackendError(
            f"{settings.host} can be reached from elsewhere: set {KEY} to a key that callers must "
            "send, or listen on 127.0.0.1"
        )
    return key


@contextmanager
def _listening(settings: ImagesServerSettings) -> Iterator[socket.socket]:
    """The open port; who comes before the server runs waits."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        door = socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        raise BackendError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; name another "
            "--host or --port"
        ) from error
    with door:
        yield door


@contextmanager
def _until_told_to_end() -> Iterator[None]:
    """TERM ends the block as Ctrl-C does, and neither is an error."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        _hear_signals()
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hear_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, _end)


def _hear_no_signals() -> None:
    """While Ray's processes are being ended; half of that would leave some."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _told(seen: Readiness) -> str:
    state = "ready" if seen.ready else "not ready"
    reason = f": {seen.reason}" if seen.reason else ""
    return f"{state}, {seen.running} of {seen.wanted} replicas can draw{reason}"
