"""The generator at a provider: a prompt and images in, one image out."""

import asyncio
from collections.abc import Sequence
from typing import Any

from schemas import BadImageError
from warehouse import EncodedImage

from ...roles import RetryableError
from ..diffusers.registry import load_registry
from .chat import ChatTurn, CompletionClient, CompletionRequest
from .settings import RemoteGeneratorModel


class RemoteGenerator:
    """Generates images; every given image is a reference, the last one is edited.

    The number of references is known for models of the registry; others get all images.

    Hosted models promise no determinism: the seed is sent where the API takes one, and another
    seed is simply another attempt.
    """

    def __init__(
        self, backend: str, client: CompletionClient[Any], settings: RemoteGeneratorModel
    ) -> None:
        self.backend, self.model = backend, settings.identity
        self._client, self._settings = client, settings
        registered = load_registry().of_model(settings.model)
        self.max_reference_images = registered.max_reference_images if registered else None

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        request = CompletionRequest(
            self._settings.model,
            (ChatTurn("user", (*images, prompt)),),
            max_tokens=self._settings.max_tokens,
            seed=seed,
            returns_image=True,
            options=self._settings.request_options(),
        )
        result = await self._client.complete(request)
        if not result.images:
            raise RetryableError(
                f"{self._settings.model} answered without an image: {result.text[:80]}"
            )
        image = result.images[-1]
        await asyncio.to_thread(self._check, image)
        return image

    def _check(self, image: EncodedImage) -> None:
        """Raises `RetryableError` for a broken image or one of another size than requested."""
        try:
            width, height = image.image.size
        except BadImageError as error:
            raise RetryableError(
                f"{self._settings.model} answered with a broken image: {error}"
            ) from None
        size = self._settings.size
        if size is not None and f"{width}x{height}" != size:
            raise RetryableError(
                f"{self._settings.model} generated {width}x{height} instead of {size}"
            )
