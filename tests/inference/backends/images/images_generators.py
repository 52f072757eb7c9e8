"""Generators of the images backend, from profiles."""

import asyncio
from collections.abc import Sequence
from typing import Any

from inference.backends.factory import Backends
from inference.roles import Generator
from warehouse import EncodedImage, Home

ROLES = {"planner": "sketch", "critic": "sketch", "scorer": "sketch", "generator": "images"}


def images_profile(*urls: str, **model: Any) -> Backends:
    """Sketch agents with a generator at these servers."""
    endpoints = [{"url": f"{url}/v1", "concurrency": 2} for url in urls]
    settings = {"endpoints": endpoints, "timeout_seconds": 20, "generator": model}
    return Backends.model_validate({"roles": ROLES, "images": settings})


def images_generator(*urls: str, **model: Any) -> Generator:
    return images_profile(*urls, **model).build(Home("memory://images")).generator


def generate(
    generator: Generator, prompt: str, images: Sequence[EncodedImage] = (), seed: int = 1
) -> EncodedImage:
    return asyncio.run(generator.generate(prompt, images, seed))
