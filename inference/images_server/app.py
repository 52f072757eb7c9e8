"""The application of an images server, and `interleave generator serve`, which runs it.

`python -m inference.images_server.app MODEL REGISTRY NAME=VALUE...` is a server that another
process manages. REGISTRY may be empty; names are those of `ImagesServerSettings`.
"""

import signal
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI

from schemas import FoundryError

from ..http.auth import AuthMiddleware, Keys, is_health_path, load_keys
from ..http.errors import install_error_handlers
from ..http.server import HTTPServer, handle_signals, interrupt, listening_socket, shutdown_signals
from ..roles import BackendError
from .handlers import ImageHandlers
from .models import ImagesServerSettings, ServableImageModel, find_servable
from .openai_images import LINKS
from .ray_replicas import ReplicaPool, deploy

KEY = "INTERLEAVE_IMAGES_KEY"
_IDLE_SECONDS = 120
_GRACE_SECONDS = 30  # that running requests get to finish when the server stops


def serve_images(
    reference: str,
    registry: Path | None,
    settings: ImagesServerSettings,
    report: Callable[[str], object],
) -> None:
    """Serve a model until Ctrl-C or SIGTERM; running requests get some time to finish.

    Args:
        reference, registry: see `find_servable`.
        report: called with a line for each change of state.

    Raises:
        FoundryError: no such model, port taken, Ray not installed or unavailable, no key.
    """
    model = find_servable(reference, registry, settings.offload)
    if find_spec("ray") is None:
        raise BackendError("images servers need Ray: run `make cluster`")
    keys = load_keys(settings.host, KEY)
    with listening_socket(settings.host, settings.port) as listener, shutdown_signals():
        port = listener.getsockname()[1]
        report(f"{model.name}: starting; http://{settings.host}:{port}/v1 will be its address")
        with deploy(model, settings, f"images-{socket.gethostname()}-{port}") as replicas:
            handle_signals(interrupt)  # replaced by Ray's
            app = make_app(model, replicas, settings, keys, report)
            try:
                HTTPServer(app, _IDLE_SECONDS, _GRACE_SECONDS).run(sockets=[listener])
            finally:
                report("stopping")
                handle_signals(signal.SIG_IGN)  # let the shutdown finish


def make_app(
    model: ServableImageModel,
    replicas: ReplicaPool,
    settings: ImagesServerSettings,
    keys: Keys,
    report: Callable[[str], object] = lambda line: None,
) -> FastAPI:
    """The server's application; `report`: see `ImageHandlers`."""
    handlers = ImageHandlers(model, replicas, settings, report)
    # Pages of documentation would load scripts from elsewhere.
    app = FastAPI(lifespan=handlers.lifespan, openapi_url=None)
    app.add_middleware(
        AuthMiddleware, keys=keys, max_bytes=settings.allowed.bytes, is_public=_is_public
    )
    install_error_handlers(app)
    handlers.add_routes(app)
    return app


def _is_public(path: str) -> bool:
    """Linked images have addresses that cannot be guessed."""
    return is_health_path(path) or path.startswith(LINKS)


if __name__ == "__main__":
    name, models, *values = sys.argv[1:]
    chosen = ImagesServerSettings.model_validate(dict(value.split("=", 1) for value in values))
    try:
        serve_images(name, Path(models) if models else None, chosen, print)
    except FoundryError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from error
