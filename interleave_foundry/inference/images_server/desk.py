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

from ..diffusers.drawing import Drawing
from ..http.errors import Refusal, went_wrong, wrong
from . import answers
from .fleet import Readiness, ReplicaLost, Studio
from .metrics import Metrics
from .models import ServedModel
from .places import Places
from .replica import Drawn, NotDrawn
from .requests import Wish
from .settings import Allowed, ImagesServerSettings
from .watch import Watch

_SOON_SECONDS = 5
_GONE = 499  # nginx's word for a client that went away; nobody reads the answer
_READ_AT_ONCE = 16  # bodies; the others are left in the network
_READ_SECONDS = 120

Read = Callable[[Request, Allowed], Awaitable[Wish]]
Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class Desk:
    """What is between HTTP and the replicas."""

    def __init__(
        self,
        model: ServedModel,
        studio: Studio,
        settings: ImagesServerSettings,
        tell: Callable[[Readiness], object],
    ) -> None:
        self._model, self._studio, self._allowed = model, studio, settings.allowed
        self._places = Places(settings.queue + studio.wanted * settings.batch)
        self._reading = asyncio.Semaphore(_READ_AT_ONCE)
        self._watch, self._metrics = Watch(studio, tell), Metrics()

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
        except Refusal as refusal:
            response = refusal.response()
        except ClientDisconnect:
            response = Response(status_code=_GONE)
        except Exception:
            _log.exception("a request for pictures failed")
            response = went_wrong().response()
        self._metrics.answered(endpoint, response.status_code)
        return response

    def check_model(self, name: str) -> None:
        """Take only the one that is served.

        Raises:
            Refusal: it is another.
        """
        if name != self._model.name:
            raise Refusal(
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
            raise Refusal(
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
        return answers.pictures(drawings, drawn)

    async def _read(self, read: Read, request: Request) -> Wish:
        try:
            async with self._reading, asyncio.timeout(_READ_SECONDS):
                return await read(request, self._allowed)
        except TimeoutError:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "the request took too long to come") from None

    async def _all(self, drawings: Sequence[Drawing]) -> list[Drawn]:
        tasks = [asyncio.ensure_future(self._one(drawing)) for drawing in drawings]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # where one is refused, nobody wants the others
                task.cancel()

    async def _one(self, drawing: Drawing) -> Drawn:
        try:
            outcome = await self._studio.draw(drawing)
        except ReplicaLost as error:
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{error}; try again",
                "replica_lost",
                retry_after=_SOON_SECONDS,
            ) from error
        if isinstance(outcome, NotDrawn):
            raise wrong(outcome.reason, code="cannot_be_drawn")
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
        raise Refusal(HTTPStatus.GATEWAY_TIMEOUT, f"not drawn in {seconds:g} seconds", "timeout")
    finally:
        working.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
