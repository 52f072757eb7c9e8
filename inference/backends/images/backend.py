"""The backend `images`: any endpoint with OpenAI's images API."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, model_validator

from schemas.trajectories import Role
from warehouse import Home

from ..backend import Backends, Finding, register
from ..providers.api import ApiSettings
from ..providers.settings import EndpointSettings, RemoteModel
from .dialects import drawn_size
from .generator import ImagesAdapter, ImagesGenerator
from .limits import find_limits
from .settings import ImagesGeneratorModel


@register
class ImagesSettings(ApiSettings):
    """Endpoints with OpenAI's images API, which share one generator's calls."""

    backend = "images"
    summary = "Endpoints of OpenAI's images API, where `roles` names images"
    plays = ("generator",)
    package = "openai"
    served_by = ("images", "command")

    endpoints: list[EndpointSettings] = Field(
        default=[EndpointSettings(url="http://127.0.0.1:8010/v1", concurrency=4)],
        min_length=1,
        description="Where calls go; each gets as many as it has free slots",
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

    def agent(
        self, role: Role, name: str, client: Any, model: Any, servers: Mapping[str, Any]
    ) -> ImagesGenerator:
        assert isinstance(model, ImagesGeneratorModel)
        known = {each: server.spec.settings for each, server in servers.items()}
        return ImagesGenerator(name, client, model, self.endpoints_of(model), known)

    def check(self, backends: Backends, home: Home) -> Iterator[Finding]:
        """What generators take, and who says so."""
        for path, model in self.generators():
            limits = find_limits(model, self.endpoints_of(model), backends.servers)
            yield Finding(f"images.{path} takes {limits}", limits.problem(model))
