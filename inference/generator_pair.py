"""A generator of two models: one draws first images, from text alone, the other edits them."""

from collections.abc import Sequence

from warehouse import EncodedImage

from .roles import Generator, max_reference_images


class GeneratorPair:
    """Qwen-Image with Qwen-Image-Edit, FLUX.1 Krea with Kontext, or any two of one backend.

    Its calls are those of its models: journal keys and ledger rows name the one that draws, so
    that another `edit` draws no first image again. `model` has the names and revisions of both.
    """

    def __init__(self, first: Generator, edit: Generator) -> None:
        self.backend, self.first, self.edit = first.backend, first, edit

    @property
    def model(self) -> str:
        return f"{self.first.model}+{self.edit.model}"

    @property
    def max_reference_images(self) -> int | None:
        return max_reference_images(self.edit)

    def member(self, images: Sequence[EncodedImage]) -> Generator:
        """The model that draws from these images."""
        return self.edit if images else self.first

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        return await self.member(images).generate(prompt, images, seed)


def drawing_model(generator: Generator, images: Sequence[EncodedImage]) -> Generator:
    """The model that draws from these images: one of a pair, else the generator itself."""
    return generator.member(images) if isinstance(generator, GeneratorPair) else generator
