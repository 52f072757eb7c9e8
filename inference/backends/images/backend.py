"""The backend `images`: a generator at any endpoint with OpenAI's images API.

A request with images is an edit, else it generates. Servers differ in the parameters that they
have (`dialects.py`) and tell what they take (`limits.py`).
"""

import asyncio
import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, model_validator

from schemas.trajectories import Role
from warehouse import EncodedImage, Home

from ...roles import BackendError, UnusableAnswerError
from ...servers.settings import Server
from ..backend import Backends, Finding, register
from ..openai.backend import OpenAIAdapter, translate_errors
from ..providers.agents import RemoteGenerator
from ..providers.api import ApiSettings, Servers, endpoints_field
from ..providers.chat import CompletionClient, CompletionRequest
from ..providers.settings import EndpointSettings, RemoteModel
from ..providers.structured import CompletionResult
from .dialects import DEFAULT, DIALECTS, Dialect, DialectName, ImagesGeneratorModel, drawn_size
from .limits import KnownLimits, find_card, find_limits

if TYPE_CHECKING:
    from openai import AsyncOpenAI


@dataclass(frozen=True, kw_only=True)
class ImagesRequest(CompletionRequest):
    """A request for an image.

    Args:
        settings: parameters, and a mask for edits.
        size: that is drawn, `WIDTHxHEIGHT`; None: the model chooses.
        dialect: None: that of the endpoint which it goes to.
    """

    settings: ImagesGeneratorModel
    size: str | None = None
    dialect: DialectName | None = None

    def arguments(self, dialect: Dialect) -> dict[str, Any]:
        """Arguments of OpenAI's client. It knows few of the fields, so that all are extra ones."""
        parameters = self.settings.parameters | {"seed": self.seed}
        if self.size:
            parameters["size"] = self.size
        fields = dialect.fields(parameters, is_edit=bool(self.images)) | self.options
        arguments: dict[str, Any] = {"model": self.model, "prompt": "\n".join(self.texts), "n": 1}
        if self.images:
            arguments["image"] = [_file(n, image) for n, image in enumerate(self.images)]
            if mask := self.settings.mask_image:
                arguments["mask"] = ("mask.png", mask.data, mask.mime)
        return arguments | {"extra_body": fields}


class _Image(BaseModel):
    b64_json: str | None = None


class _Images(BaseModel):
    """What counts of a response."""

    data: list[_Image] | None = None
    usage: dict[str, Any] | None = None


class ImagesAdapter(OpenAIAdapter):
    """Sends a request with the parameters that the server's dialect has."""

    async def complete(self, client: "AsyncOpenAI", request: CompletionRequest) -> CompletionResult:
        assert isinstance(request, ImagesRequest), "generators request images"
        arguments = request.arguments(await _dialect_of(client, request))
        raw = client.images.with_raw_response
        with translate_errors(client):
            response = await (raw.edit if request.images else raw.generate)(**arguments)
            return _parse_images(_Images.model_validate_json(response.content))


async def _dialect_of(client: "AsyncOpenAI", request: ImagesRequest) -> Dialect:
    """The dialect of a request, else of the endpoint's server, which is asked once.

    Raises BackendError where the profile sets what the server has no parameter for.
    """
    if request.dialect:
        return DIALECTS[request.dialect]
    url = str(client.base_url)
    card = await find_card(url, client.api_key, request.model)
    dialect = DIALECTS[card.dialect if card else DEFAULT]
    if problem := request.settings.problem(dialect.name):
        raise BackendError(f"generator {request.model} at {client.base_url}: {problem}")
    return dialect


def _file(number: int, image: EncodedImage) -> tuple[str, bytes, str]:
    kind = image.mime.removeprefix("image/")
    return f"picture-{number}.{kind}", image.data, image.mime


def _parse_images(response: _Images) -> CompletionResult:
    usage = response.usage or {}
    return CompletionResult(
        text="",
        images=tuple(_decode(image.b64_json) for image in response.data or () if image.b64_json),
        input_tokens=usage.get("input_tokens") or 0,
        output_tokens=usage.get("output_tokens") or 0,
    )


def _decode(encoded: str) -> EncodedImage:
    """An image; one that is not base64 is a broken image, and billed like any other."""
    try:
        return EncodedImage(base64.b64decode(encoded, validate=True))
    except binascii.Error:
        return EncodedImage(encoded.encode())


class ImagesGenerator(RemoteGenerator):
    """Servers tell their limits, and what kind of server they are, where they can be asked.

    `endpoints`: that its calls go to. `servers`: those of the profile.
    """

    def __init__(
        self,
        backend: str,
        client: CompletionClient,
        settings: ImagesGeneratorModel,
        endpoints: Sequence[EndpointSettings],
        servers: Mapping[str, Server],
    ) -> None:
        super().__init__(backend, client, settings)
        self._images_settings, self._endpoints, self._servers = settings, endpoints, servers
        self._dialect = settings.static_dialect(endpoints)
        if settings.size and self._dialect == "openai":
            self._size = drawn_size(settings.model, settings.size)

    @cached_property
    def limits(self) -> KnownLimits:
        """Asks its servers; not for event loops."""
        return find_limits(self._images_settings, self._endpoints, self._servers)

    @property
    def max_reference_images(self) -> int | None:
        """A mask belongs to one image."""
        return 1 if self._images_settings.mask else self.limits.max_reference_images

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        settings = self._images_settings
        if "limits" not in vars(self):
            await asyncio.to_thread(lambda: self.limits)
        if problem := self.limits.problem(settings):
            raise BackendError(f"images: {problem}")
        mask = settings.mask_image
        if images and mask and mask.image.size != images[-1].image.size:
            sizes = "{}x{} for {}x{}".format(*mask.image.size, *images[-1].image.size)
            raise UnusableAnswerError(f"the mask has to be as large as the image, not {sizes}")
        return await super().generate(prompt, images, seed)

    def _request(self, prompt: str, images: Sequence[EncodedImage], seed: int) -> ImagesRequest:
        request = vars(super()._request(prompt, images, seed))
        settings, size, dialect = self._images_settings, self._size, self._dialect
        return ImagesRequest(**request, settings=settings, size=size, dialect=dialect)


@register
class ImagesSettings(ApiSettings):
    """Endpoints with OpenAI's images API, which share one generator's calls."""

    backend = "images"
    summary = "Endpoints of OpenAI's images API, where `roles` names images"
    plays = ("generator",)
    package = "openai"
    served_by = ("images", "command")

    endpoints: list[EndpointSettings] = endpoints_field(
        url="http://127.0.0.1:8010/v1", concurrency=4
    )
    timeout_seconds: float = Field(300, gt=0, description="Of one request")
    generator: ImagesGeneratorModel | None = Field(None, description="The generator")

    def generators(self) -> Iterator[tuple[str, ImagesGeneratorModel]]:
        """The model, or both of a pair, with the key below `images`."""
        if self.generator:
            yield "generator", self.generator
            if self.generator.edit:
                yield "generator.edit", self.generator.edit

    @model_validator(mode="after")
    def _dialects_have_what_is_set(self) -> "ImagesSettings":
        for path, model in self.generators():
            dialect = model.static_dialect(self.endpoints_of(model))
            if dialect and (problem := model.problem(dialect)):
                raise ValueError(f"{path}.{problem}")
            if dialect == "openai" and model.size:
                drawn_size(model.model, model.size)
        return self

    def adapter(self) -> ImagesAdapter:
        return ImagesAdapter(self.timeout_seconds)

    def models(self) -> Iterator[tuple[str, Role, RemoteModel]]:
        yield from ((path, "generator", model) for path, model in self.generators())

    def agent(self, role: Role, name: str, client: Any, model: Any, servers: Servers) -> Any:
        assert isinstance(model, ImagesGeneratorModel)
        known = {each: server.spec.settings for each, server in servers.items()}
        return ImagesGenerator(name, client, model, self.endpoints_of(model), known)

    def check(self, backends: Backends, home: Home) -> Iterator[Finding]:
        """What generators take, and who says so."""
        for path, model in self.generators():
            limits = find_limits(model, self.endpoints_of(model), backends.servers)
            yield Finding(f"images.{path} takes {limits}", limits.problem(model))
