"""From a request to its images: read it, admit it, generate on the replicas, answer."""

import asyncio
import base64
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from warehouse.storage import first_line

from ..backends.diffusers.generation_spec import GenerationSpec
from ..engine.worker_pool import gather_or_cancel
from ..http.admission import AdmissionQueue
from ..http.disconnect import run_while_connected
from ..http.errors import APIError, bad_request, internal_error
from .metrics import ImagesServerMetrics
from .models import ServableImageModel
from .ray_replicas import Readiness, ReplicaLostError, ReplicaPool
from .replica import DrawnImage, DrawRejected
from .requests import ImageJob, ImageRequestReader
from .settings import ImagesServerSettings

_RETRY_SECONDS = 5
_CLIENT_CLOSED = 499  # nginx's status for a client that disconnected
_HEALTH_CHECK_SECONDS = 1.0

_log = logging.getLogger(__name__)


class ImageHandlers:
    """The endpoints of one model.

    Args:
        report: called whenever readiness changes.
    """

    def __init__(
        self,
        model: ServableImageModel,
        replicas: ReplicaPool,
        settings: ImagesServerSettings,
        report: Callable[[Readiness], object],
    ) -> None:
        self._model, self._replicas, self._limits = model, replicas, settings.allowed
        # Ray Serve's limit counts only images that have no replica yet, so it rejects parts of a
        # burst that would fit; and a request for several images must be admitted as one.
        self._queue = AdmissionQueue(
            replicas.wanted * settings.batch, settings.queue, unit="images"
        )
        self._reader = ImageRequestReader(settings.allowed)
        self._health = HealthMonitor(replicas, report)
        self._metrics = ImagesServerMetrics()

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Watch the replicas while the server runs."""
        monitor = asyncio.create_task(self._health.run())
        yield
        monitor.cancel()
        with suppress(asyncio.CancelledError):
            await monitor

    def add_routes(self, app: FastAPI) -> None:
        """Add the images API, and the endpoints for operators, to an application."""
        app.add_api_route("/v1/images/generations", self.generations, methods=["POST"])
        app.add_api_route("/v1/images/edits", self.edits, methods=["POST"])
        app.add_api_route("/v1/models", self.list_models)
        app.add_api_route("/v1/models/{name}", self.retrieve_model)
        app.add_api_route("/health", self.health)
        app.add_api_route("/ready", self.ready)
        app.add_api_route("/metrics", self.metrics)

    async def generations(self, request: Request) -> Response:
        return await self._respond("generations", request, self._reader.read_generation)

    async def edits(self, request: Request) -> Response:
        return await self._respond("edits", request, self._reader.read_edit)

    async def list_models(self) -> dict[str, Any]:
        return {"object": "list", "data": [self._describe_model()]}

    async def retrieve_model(self, name: str) -> dict[str, Any]:
        self._check_model(name)
        return self._describe_model()

    async def health(self) -> dict[str, str]:
        return {"status": "alive"}

    async def ready(self) -> dict[str, Any]:
        state = self._check_ready()
        counts = {"replicas": state.running, "wanted": state.wanted}
        return {"ready": True, **counts, "reason": state.reason}

    async def metrics(self) -> Response:
        return self._metrics.response(self._queue.admitted, self._health.last)

    def _describe_model(self) -> dict[str, Any]:
        name = self._model.name
        return {"id": name, "object": "model", "created": 0, "owned_by": "interleave-foundry"}

    def _check_model(self, name: str) -> None:
        if name != self._model.name:
            raise APIError(
                HTTPStatus.NOT_FOUND,
                f"no model {name} here, only {self._model.name}",
                "model_not_found",
                "model",
            )

    def _check_ready(self) -> Readiness:
        state = self._health.last
        if not state.ready:
            raise APIError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{state.running} of {state.wanted} replicas are running: {state.reason}",
                "not_ready",
                retry_after=_RETRY_SECONDS,
            )
        return state

    async def _respond(
        self, endpoint: str, request: Request, read: Callable[[Request], Awaitable[ImageJob]]
    ) -> Response:
        try:
            body = orjson.dumps(await self._generate(request, read))
            response = Response(body, media_type="application/json")
        except APIError as error:
            response = error.response()
        except ClientDisconnect:
            response = Response(status_code=_CLIENT_CLOSED)
        except Exception:
            _log.exception("a request for images failed")
            response = internal_error().response()
        self._metrics.count_response(endpoint, response.status_code)
        return response

    async def _generate(
        self, request: Request, read: Callable[[Request], Awaitable[ImageJob]]
    ) -> dict[str, Any]:
        start = time.perf_counter()
        job = await read(request)
        self._check_model(job.request.model or self._model.name)
        self._check_ready()
        specs = job.specs(self._model.params)
        if len(specs) > self._queue.capacity:
            message = f"this server takes no more than {self._queue.capacity} images at once"
            raise bad_request(message, "n")
        with self._queue.admit(count=len(specs)), self._queue.timed():
            images = await self._generate_all(request, specs)
        self._metrics.record(images, time.perf_counter() - start)
        return _to_json(specs, images)

    async def _generate_all(
        self, request: Request, specs: Sequence[GenerationSpec]
    ) -> list[DrawnImage]:
        try:
            work = gather_or_cancel(*map(self._generate_one, specs))
            return await run_while_connected(request, work, self._limits.seconds)
        except TimeoutError:
            message = f"not finished in {self._limits.seconds:g} seconds"
            raise APIError(HTTPStatus.GATEWAY_TIMEOUT, message, "timeout") from None

    async def _generate_one(self, spec: GenerationSpec) -> DrawnImage:
        try:
            result = await self._replicas.draw(spec)
        except ReplicaLostError as error:
            raise APIError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{error}; try again",
                "replica_lost",
                retry_after=_RETRY_SECONDS,
            ) from error
        if isinstance(result, DrawRejected):
            raise bad_request(result.reason, code="cannot_be_drawn")
        return result


class HealthMonitor:
    """Looks at the replicas once a second; `last` is the newest state.

    Args:
        report: called whenever the state changes.
    """

    def __init__(self, replicas: ReplicaPool, report: Callable[[Readiness], object]) -> None:
        self._replicas, self._report = replicas, report
        self.last = Readiness(0, replicas.wanted, "replicas are being started")

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            state = await asyncio.to_thread(self._check)
            if state != self.last:
                self.last = state
                self._report(state)
            await asyncio.sleep(_HEALTH_CHECK_SECONDS)

    def _check(self) -> Readiness:
        try:
            return self._replicas.readiness()
        except Exception as error:  # Ray raises errors of all kinds
            reason = f"Ray Serve does not answer: {first_line(error)}"
            return Readiness(0, self._replicas.wanted, reason)


def _to_json(specs: Sequence[GenerationSpec], images: Sequence[DrawnImage]) -> dict[str, Any]:
    """Images in the order of the request, each with the seed that reproduces it."""
    data = [
        {"b64_json": base64.b64encode(image.data).decode(), "seed": spec.seed}
        for spec, image in zip(specs, images, strict=True)
    ]
    return {"created": int(time.time()), "data": data, "output_format": "png"}
