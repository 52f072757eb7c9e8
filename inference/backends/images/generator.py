"""The generator behind images endpoints."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cached_property

from warehouse import EncodedImage

from ...roles import BackendError, UnusableAnswerError
from ...servers.settings import Server
from ..providers.agents import RemoteGenerator
from ..providers.chat import ChatTurn, CompletionClient
from ..providers.settings import EndpointSettings
from .adapter import ImagesRequest
from .limits import KnownLimits, find_limits
from .openai_models import drawn_size
from .settings import ImagesGeneratorModel


class ImagesGenerator(RemoteGenerator):
    """Servers tell their limits, and what kind of server they are, where they can be asked.

    Args:
        endpoints: that its calls go to.
        servers: those of the profile.
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
        limits = await asyncio.to_thread(lambda: self.limits)
        if problem := limits.problem(settings):
            raise BackendError(f"images: {problem}")
        mask = settings.mask_image
        if images and mask and mask.image.size != images[-1].image.size:
            sizes = "{}x{} for {}x{}".format(*mask.image.size, *images[-1].image.size)
            raise UnusableAnswerError(f"the mask has to be as large as the image, not {sizes}")
        return await super().generate(prompt, images, seed)

    def _request(self, prompt: str, images: Sequence[EncodedImage], seed: int) -> ImagesRequest:
        settings = self._images_settings
        return ImagesRequest(
            settings.model,
            (ChatTurn("user", (*images, prompt)),),
            max_tokens=settings.max_tokens,
            seed=seed,
            returns_image=True,
            options=settings.options,
            settings=settings,
            size=self._size,
            dialect=self._dialect,
        )
