"""`interleave generator serve`: from a model's name to a server that leaves nothing behind."""

import socket
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ..http.keys import keys_for
from ..http.sockets import ignore_signals, install_signals, listening_socket, shutdown_signals
from ..roles import BackendError
from .models import find_served
from .ray_replicas import Readiness, deployed
from .settings import ImagesServerSettings

KEY = "INTERLEAVE_IMAGES_KEY"


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
    keys = keys_for(settings.host, KEY)
    with listening_socket(settings.host, settings.port) as door, shutdown_signals():
        port = door.getsockname()[1]
        tell(f"{model.name}: starting; http://{settings.host}:{port}/v1 will be its address")
        with deployed(model, settings, f"images-{socket.gethostname()}-{port}") as fleet:
            install_signals()  # Ray has handlers of its own
            import uvicorn

            from .app import make_app

            app = make_app(model, fleet, settings, keys, lambda seen: tell(_told(seen)))
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
                ignore_signals()


def _told(seen: Readiness) -> str:
    state = "ready" if seen.ready else "not ready"
    reason = f": {seen.reason}" if seen.reason else ""
    return f"{state}, {seen.running} of {seen.wanted} replicas can draw{reason}"
