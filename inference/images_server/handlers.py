"""Takes requests for pictures, has them drawn, and keeps count."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from time import perf_counter
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from ..backends.diffusers.generation_spec import GenerationSpec
from ..http.errors import APIError, bad_request, internal_error
from . import responses
from .admission import ImageAdmission
from .health_monitor import HealthMonitor
from .metrics import ImagesServerMetrics
from .models import ServableImageModel
from .ray_replicas import Readiness, ReplicaLost, ReplicaPool
from .replica import DrawnImages, DrawRejected
from .requests import ImageJob
from .settings import ImageLimits, ImagesServerSettings

_SOON_SECONDS = 5
_GONE = 499  # nginx's word for a client that went away; nobody reads the answer
_READ_AT_ONCE = 16  # bodies; the others are left in the network
_READ_SECONDS = 120

Read = Callable[[Request, ImageLimits], Awaitable[ImageJob]]
Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class ImageHandlers:
    """What is between HTTP and the replicas."""

    def __init__(
        self,
        model: ServableImageModel,
        studio: ReplicaPool,
        settings: ImagesServerSettings,
        tell: Callable[[Readiness], object],
    ) -> None:
        self._model, self._studio, self._allowed = model, studio, settings.allowed
        self._places = ImageAdmission(settings.queue + studio.wanted * settings.batch)
        self._reading = asyncio.Semaphore(_READ_AT_ONCE)
        self._watch, self._metrics = HealthMonitor(studio, tell), ImagesServerMetrics()

    @asynccontextmanager
    async def open(self, app: FastAPI) -> AsyncIterator[None]:
        """The time during which the server runs."""
        watching = asyncio.create_task(self._watch.run())
        yield
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching

    async def serve(self, endpoint: str, read: Read, request: Request) -> Response:
        """Answer a request for pictures, with pictures or with an error."""
        try:
            body = orjson.dumps(await self._answer(read, request))
            response = Response(body, media_type="application/json")
        except APIError as refusal:
            response = refusal.response()
        except ClientDisconnect:
            response = Response(status_code=_GONE)
        except Exception:
            _log.exception("a request for pictures failed")
            response = internal_error().response()
        self._metrics.answered(endpoint, response.status_code)
        return response

    def check_model(self, name: str) -> None:
        """Take only the one that is served.

        Raises:
            Refusal: it is another.
        """
        if name != self._model.name:
            raise APIError(
                HTTPStatus.NOT_FOUND,
                f"no model {name} here, only {self._model.name}",
                "model_not_found",
                "model",
            )

    def check_ready(self) -> Readiness:
        """How many replicas can draw.

        Raises:
            Refusal: none.
        """
        seen = self._watch.last
        if not seen.ready:
            raise APIError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{seen.running} of {seen.wanted} replicas can draw: {seen.reason}",
                "not_ready",
                retry_after=_SOON_SECONDS,
            )
        return seen

    def metrics(self) -> bytes:
        """In Prometheus' format."""
        seen = self._watch.last
        return self._metrics.text(self._places.used, seen.running, seen.wanted)

    async def _answer(self, read: Read, request: Request) -> dict[str, Any]:
        begun = perf_counter()
        wish = await self._read(read, request)
        self.check_model(wish.asked.model or self._model.name)
        self.check_ready()
        drawings = wish.drawings(self._model.manner)
        with self._places.taken(len(drawings)):
            drawn = await _while_awaited(request, self._all(drawings), self._allowed.seconds)
        self._metrics.drawn(drawn, perf_counter() - begun)
        return responses.pictures(drawings, drawn)

    async def _read(self, read: Read, request: Request) -> ImageJob:
        try:
            async with self._reading, asyncio.timeout(_READ_SECONDS):
                return await read(request, self._allowed)
        except TimeoutError:
            raise APIError(
                HTTPStatus.REQUEST_TIMEOUT, "the request took too long to come"
            ) from None

    async def _all(self, drawings: Sequence[GenerationSpec]) -> list[DrawnImages]:
        tasks = [asyncio.ensure_future(self._one(drawing)) for drawing in drawings]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # where one is refused, nobody wants the others
                task.cancel()

    async def _one(self, drawing: GenerationSpec) -> DrawnImages:
        try:
            outcome = await self._studio.draw(drawing)
        except ReplicaLost as error:
            raise APIError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{error}; try again",
                "replica_lost",
                retry_after=_SOON_SECONDS,
            ) from error
        if isinstance(outcome, DrawRejected):
            raise bad_request(outcome.reason, code="cannot_be_drawn")
        return outcome


async def _while_awaited(
    request: Request, work: Coroutine[Any, Any, Result], seconds: float
) -> Result:
    """The result of `work`, which is cancelled once the client goes away or time is up.

    Raises:
        ClientDisconnect, Refusal: accordingly.
    """
    working, leaving = asyncio.create_task(work), asyncio.create_task(_left(request))
    try:
        await asyncio.wait({working, leaving}, timeout=seconds, return_when="FIRST_COMPLETED")
        if working.done():
            return working.result()
        if leaving.done():
            raise ClientDisconnect
        raise APIError(HTTPStatus.GATEWAY_TIMEOUT, f"not drawn in {seconds:g} seconds", "timeout")
    finally:
        working.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
