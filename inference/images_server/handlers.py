"""From a request to its images: read it, admit it, generate on the replicas, answer."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from warehouse.storage import first_line

from ..backends.diffusers.pipeline_runner import GenerationSpec
from ..calls.worker_pool import gather_or_cancel
from ..http.admission import AdmissionQueue
from ..http.errors import CLIENT_CLOSED, APIError, bad_request, internal_error, unavailable
from ..http.server import MetricsRegistry, run_while_connected
from . import reference
from .models import DrawnImage, DrawRejected, ImagesServerSettings, ServableImageModel
from .openai_images import (
    LINKS,
    ImageEncoder,
    ImageJob,
    ImageRequestReader,
    LinkedImages,
    check_model,
    error_event,
)
from .ray_replicas import Readiness, ReplicaLostError, ReplicaPool

_HEALTH_CHECK_SECONDS = 1.0

_Read = Callable[[Request], Awaitable[ImageJob]]
_Handle = Callable[[Request], Awaitable[Response]]
_ToResponse = Callable[[APIError], Response]
# Waits for images for so many seconds; TimeoutError: they take longer.
_Wait = Callable[[Awaitable[list[DrawnImage]], float], Awaitable[list[DrawnImage]]]

_log = logging.getLogger(__name__)


class ImagesServerMetrics(MetricsRegistry):
    def __init__(self) -> None:
        super().__init__("interleave_images")
        self._requests = self.counter(
            "requests",
            "Requests by endpoint and status; 499: the client disconnected",
            ("endpoint", "status"),
        )
        self._images = self.counter(
            "pictures", "Images generated, by replica (host:process)", ["replica"]
        )
        self._request_seconds = self.histogram(
            "request_seconds", "Request, waiting included", ["endpoint"]
        )
        self.in_flight = self.gauge("requests_in_flight", "Requests that are being answered")
        self._queue = self.gauge("queue", "Images that are waiting or being generated")
        self._waiting = self.gauge("waiting", "Images that wait for a replica")
        self._running = self.gauge("replicas_running", "Replicas that are running")
        self._wanted = self.gauge("replicas_wanted", "Replicas that should be running")
        self._batch_size = self.histogram(
            "batch_size", "Size of an image's batch", buckets=(1, 2, 4, 8, 16, 32)
        )
        self._model_seconds = self.histogram(
            "model_seconds", "Time in the model of an image's batch"
        )
        self._outside_seconds = self.histogram(
            "outside_seconds", "Time of a request outside the model: waiting, transfer, encoding"
        )

    def record(self, images: Sequence[DrawnImage], seconds: float) -> None:
        """Count the images of a request that took so many seconds."""
        for image in images:
            self._images.labels(image.replica).inc()
            self._batch_size.observe(image.batch)
            self._model_seconds.observe(image.seconds)
        self._outside_seconds.observe(max(0.0, seconds - max(each.seconds for each in images)))

    def record_request(self, endpoint: str, status: int, start: float) -> None:
        """Count a request that began at `start`, by `time.perf_counter`, and has ended."""
        self._requests.labels(endpoint, str(status)).inc()
        self._request_seconds.labels(endpoint).observe(time.perf_counter() - start)

    def response(self, queue: int, capacity: int, replicas: Readiness) -> Response:
        """The answer of `/metrics`. `queue`: admitted images; `capacity`: drawn at once."""
        self._queue.set(queue)
        self._waiting.set(max(0, queue - capacity))
        self._running.set(replicas.running)
        self._wanted.set(replicas.wanted)
        return self.exposition()


class ImageHandlers:
    """The endpoints of one model. `report` gets a line whenever readiness changes."""

    def __init__(
        self,
        model: ServableImageModel,
        replicas: ReplicaPool,
        settings: ImagesServerSettings,
        report: Callable[[str], object],
    ) -> None:
        self._model, self._replicas, self._limits = model, replicas, settings.allowed
        self._report = report
        self._readiness = Readiness(0, replicas.wanted, "replicas are being started")
        # Ray Serve's limit counts only images that have no replica yet, so it rejects parts of a
        # burst that would fit; and a request for several images must be admitted as one.
        self._running = replicas.wanted * settings.batch
        self._queue = AdmissionQueue(self._running, settings.queue, unit="images")
        self._workers: dict[str, int] = {}  # replica -> its number
        self._metrics = ImagesServerMetrics()
        self._links = LinkedImages()

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Monitor the replicas while the server runs."""
        monitor = asyncio.create_task(self._watch())
        yield
        monitor.cancel()

    async def _watch(self) -> None:
        while True:
            try:
                state = await asyncio.to_thread(self._replicas.readiness)
            except Exception as error:  # Ray raises errors of all kinds
                reason = f"Ray Serve does not answer: {first_line(error)}"
                state = Readiness(0, self._replicas.wanted, reason)
            if state != self._readiness:
                self._readiness = state
                self._report(f"{'ready' if state.running else 'not ready'}, {state}")
            await asyncio.sleep(_HEALTH_CHECK_SECONDS)

    def add_routes(self, app: FastAPI) -> None:
        """Add the images API, and the endpoints for operators, to an application."""
        reader = ImageRequestReader(self._model, self._limits)
        for name, read in (("generations", reader.read_generation), ("edits", reader.read_edit)):
            respond = partial(self._respond, name, partial(self._generate, read), APIError.response)
            app.add_api_route(f"/v1/images/{name}", respond, methods=["POST"])
        edit = partial(self._respond, "edit", partial(self._edit, reader), reference.error_response)
        app.add_api_route("/edit", edit, methods=["POST"])
        app.add_api_route("/status", self.status)
        app.add_api_route(f"{LINKS}{{name}}", self.linked_image)
        app.add_api_route("/v1/models", self.list_models)
        app.add_api_route("/v1/models/{name}", self.retrieve_model)
        app.add_api_route("/health", self.health)
        app.add_api_route("/ready", self.ready)
        app.add_api_route("/metrics", self.metrics)

    async def list_models(self) -> dict[str, Any]:
        return {"object": "list", "data": [await self.retrieve_model(self._model.name)]}

    async def retrieve_model(self, name: str) -> dict[str, Any]:
        check_model(self._model, name)
        limits = self._model.limits.model_copy(update={"max_pixels": self._limits.pixels})
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "interleave-foundry",
            "limits": limits.model_dump(mode="json"),
        }

    async def linked_image(self, name: str) -> Response:
        mime, content = self._links.get(name)
        return Response(content, media_type=mime, headers={"X-Content-Type-Options": "nosniff"})

    async def health(self) -> dict[str, Any]:
        return reference.health(self._readiness)

    async def status(self) -> dict[str, Any]:
        return reference.status(self._readiness, self._queue.admitted, self._running)

    async def ready(self) -> dict[str, Any]:
        state = self._check_ready()
        counts = {"replicas": state.running, "wanted": state.wanted}
        return {"ready": True, **counts, "reason": state.reason}

    async def metrics(self) -> Response:
        return self._metrics.response(self._queue.admitted, self._running, self._readiness)

    def _check_ready(self) -> Readiness:
        state = self._readiness
        if not state.running:
            raise unavailable(str(state), "not_ready")
        return state

    async def _respond(
        self, endpoint: str, handle: _Handle, to_response: _ToResponse, request: Request
    ) -> Response:
        start = time.perf_counter()
        try:
            with self._metrics.in_flight.track_inprogress():
                response = await handle(request)
        except APIError as error:
            response = to_response(error)
        except ClientDisconnect:
            response = Response(status_code=CLIENT_CLOSED)
        except Exception:
            _log.exception("a request for images failed")
            response = to_response(internal_error())
        if not isinstance(response, StreamingResponse):  # which counts itself at its end
            self._metrics.record_request(endpoint, response.status_code, start)
        return response

    async def _edit(self, reader: ImageRequestReader, request: Request) -> Response:
        start = time.time()
        edit, job = await reader.read_reference(request)
        self._check_ready()
        [image] = await self._draw_admitted(request, job.specs)
        worker = self._workers.setdefault(image.replica, len(self._workers))
        body = reference.edit_response(edit, image, job.specs[0].seed, worker, start)
        return Response(orjson.dumps(body), media_type="application/json")

    async def _generate(self, read: _Read, request: Request) -> Response:
        job = await read(request)
        self._check_ready()
        encoder = ImageEncoder(job, self._links, str(request.base_url).rstrip("/"))
        if len(job.specs) > self._queue.capacity:
            message = f"this server takes no more than {self._queue.capacity} images at once"
            raise bad_request(message, "n")
        if job.request.stream:
            self._queue.check(count=1)
            return StreamingResponse(self._stream(encoder), media_type="text/event-stream")
        images = await self._draw_admitted(request, job.specs)
        body = orjson.dumps(await encoder.response(images))
        return Response(body, media_type="application/json")

    async def _stream(self, encoder: ImageEncoder) -> AsyncIterator[bytes]:
        """Ends with an error where an image takes too long, or the queue has filled meanwhile."""
        status, start = CLIENT_CLOSED, time.perf_counter()
        self._metrics.in_flight.inc()
        try:
            with self._queue.admit(), self._queue.timed():
                async for event in encoder.events(self._draw_in_time):
                    yield event
            status = HTTPStatus.OK
        except APIError as error:
            status = error.status
            yield error_event(error)
        except Exception:
            _log.exception("a stream of images failed")
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            yield error_event(internal_error())
        finally:
            endpoint = "edits" if encoder.job.is_edit else "generations"
            self._metrics.in_flight.dec()
            self._metrics.record_request(endpoint, int(status), start)

    async def _draw_admitted(
        self, request: Request, specs: Sequence[GenerationSpec]
    ) -> list[DrawnImage]:
        with self._queue.admit(count=len(specs)), self._queue.timed():
            return await self._draw(specs, partial(run_while_connected, request))

    async def _draw_in_time(self, spec: GenerationSpec) -> DrawnImage:
        [image] = await self._draw([spec], asyncio.wait_for)
        return image

    async def _draw(self, specs: Sequence[GenerationSpec], wait: _Wait) -> list[DrawnImage]:
        start = time.perf_counter()
        try:
            work = gather_or_cancel(*map(self._generate_one, specs))
            images = await wait(work, self._limits.seconds)
        except TimeoutError:
            message = f"not finished in {self._limits.seconds:g} seconds"
            raise APIError(HTTPStatus.GATEWAY_TIMEOUT, message, "timeout") from None
        self._metrics.record(images, time.perf_counter() - start)
        return images

    async def _generate_one(self, spec: GenerationSpec) -> DrawnImage:
        try:
            result = await self._replicas.draw(spec)
        except ReplicaLostError as error:
            raise unavailable(f"{error}; try again", "replica_lost") from error
        if isinstance(result, DrawRejected):
            raise bad_request(result.reason, code="cannot_be_drawn")
        return result
