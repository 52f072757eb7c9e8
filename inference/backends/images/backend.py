"""The backend `images`: any endpoint with OpenAI's images API."""

from collections.abc import Iterator, Mapping
from typing import Any

from schemas.trajectories import Role
from warehouse import Home

from ..backend import Backends, Finding, register
from ..providers.settings import RemoteModel
from .generator import ImagesAdapter, ImagesGenerator
from .limits import find_limits
from .settings import ImagesGeneratorModel, ImagesSettings


@register
class ImagesBackend(ImagesSettings):
    """Endpoints with OpenAI's images API, which share one generator's calls."""

    backend = "images"
    summary = "Endpoints of OpenAI's images API, where `roles` names images"
    plays = ("generator",)
    package = "openai"
    served_by = ("images", "command")

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
