"""The generator at a provider: a prompt and pictures go out, one picture comes back."""

import asyncio
from collections.abc import Sequence
from typing import Any

from schemas import BadImageError
from warehouse import EncodedImage

from ...roles import RetryableError
from ..diffusers.registry import load_registry
from .chat import Chat, ChatTurn, CompletionRequest
from .settings import DrawingModel


class RemoteGenerator:
    """Draws; every picture given is a reference, the last one is edited.

    How many it takes is known of the registry's models; others are given all.

    Hosted models promise no determinism: the seed is sent where the API has a place for it, and
    another seed is another try.
    """

    def __init__(self, backend: str, chat: Chat[Any], settings: DrawingModel) -> None:
        self.backend, self.model = backend, settings.identity
        self._chat, self._settings = chat, settings
        known = load_registry().of_model(settings.model)
        self.references = known.looks_at if known else None

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        question = CompletionRequest(
            self._settings.model,
            (ChatTurn("user", (*images, prompt)),),
            max_tokens=self._settings.max_tokens,
            seed=seed,
            draws=True,
            options=self._settings.request(),
        )
        reply = await self._chat.ask(question)
        if not reply.pictures:
            raise RetryableError(
                f"{self._settings.model} answered without a picture: {reply.text[:80]}"
            )
        picture = reply.pictures[-1]
        await asyncio.to_thread(self._check, picture)
        return picture

    def _check(self, picture: EncodedImage) -> None:
        """Half a picture, or one of another size than asked for, may come whole next time."""
        try:
            width, height = picture.image.size
        except BadImageError as error:
            raise RetryableError(
                f"{self._settings.model} answered with no picture: {error}"
            ) from None
        wanted = self._settings.size
        if wanted is not None and f"{width}x{height}" != wanted:
            raise RetryableError(
                f"{self._settings.model} drew {width}x{height} instead of {wanted}"
            )
