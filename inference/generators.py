"""Generators of several models: a mix shares the prompts of a bank, a pair draws one image."""

import math
from collections.abc import Sequence
from dataclasses import replace

from warehouse import EncodedImage

from .calls.hashing import unit_interval
from .roles import Generator, Roles, max_reference_images


def roles_of_prompt(roles: Roles, prompt_id: str) -> Roles:
    """The roles of a prompt of the bank: with a mix, its generator is the member that draws it.

    The member follows from the prompt's id by weighted rendezvous hashing: another weight, or one
    member more or less, changes it for as few prompts as the new weights allow.
    """
    if not roles.mix:
        return roles

    def arrival(member: tuple[Generator, float]) -> float:
        """Exponential with the weight as its rate: each is first as often as its weight says."""
        generator, weight = member
        return -math.log1p(-unit_interval(f"{generator.backend} {prompt_id}")) / weight

    return replace(roles, generator=min(roles.mix, key=arrival)[0])


def generator_shares(roles: Roles) -> list[tuple[Generator, float]]:
    """Who draws the bank's prompts, and the expected share of them."""
    members = roles.mix or ((roles.generator, 1.0),)
    total = sum(weight for _, weight in members)
    return [(generator, weight / total) for generator, weight in members]


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
