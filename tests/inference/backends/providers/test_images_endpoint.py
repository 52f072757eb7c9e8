"""The generator behind an images endpoint, through the official client."""

import asyncio
import base64

import pytest

from inference.backends.factory import Backends
from inference.roles import RetryableError
from tests.inference.backends.providers.faulty_provider import provider
from warehouse import EncodedImage, Home

GOAL = "Draw a meadow with a red flower at the bottom center."
EDIT = "Add a blue bird at the top left. Keep everything else unchanged."


def generator(*servers, **model):
    endpoints = [{"url": f"{server.url}/v1", "concurrency": 2} for server in servers]
    settings = {
        "endpoints": endpoints,
        "timeout_seconds": 20,
        "generator": {"model": "klein", **model},
    }
    roles = {"planner": "sketch", "critic": "sketch", "scorer": "sketch", "generator": "images"}
    profile = Backends.model_validate({"roles": roles, "images": settings})
    return profile.build(Home("memory://images")).generator


def generate(backend, prompt=GOAL, images=(), seed=1):
    return asyncio.run(backend.generate(prompt, images, seed))


def test_an_image_is_generated_and_edited():
    with provider() as server:
        backend = generator(server, steps=4, guidance=1.0, size="192x192")
        first = generate(backend)
        second = generate(backend, EDIT, (first,), seed=2)
        images = [EncodedImage.white((side, 16)) for side in (16, 24)]
        generate(generator(server), GOAL, images)
        draw, edit, of_several = server.bodies
    assert of_several["images"] == [image.sha256 for image in images]
    assert first.image.size == second.image.size == (192, 192)
    assert first != second
    assert draw["prompt"] == GOAL
    assert (draw["seed"], draw["num_inference_steps"], draw["size"]) == (1, 4, "192x192")
    assert edit["images"] == [first.sha256]
    assert (edit["seed"], edit["guidance_scale"]) == ("2", "1.0")


def test_faults_are_retryable():
    small, broken = EncodedImage.white((8, 8)).data, b"no picture"
    with provider() as server:
        backend = generator(server, size="192x192")
        for fault, message in {
            "empty": "answered without an image",
            "!!!": "answered with a broken image",
            base64.b64encode(broken).decode(): "answered with a broken image",
            base64.b64encode(small).decode(): "generated 8x8 instead of 192x192",
            "error": "500",
            "reset": "no connection",
        }.items():
            server.scripts = [fault]
            with pytest.raises(RetryableError, match=message):
                generate(backend)


def test_endpoints_share_calls_and_replace_one_that_fails():
    with provider() as first, provider() as second:
        first.schedule.latency = second.schedule.latency = 0.02
        backend = generator(first, second)

        async def generate_many(count):
            draws = (backend.generate(GOAL, (), seed) for seed in range(count))
            return await asyncio.gather(*draws, return_exceptions=True)

        asyncio.run(generate_many(8))
        shares = sum(first.requests.values()), sum(second.requests.values())
        first.schedule.faults = {"reset": 1.0}
        answers = asyncio.run(generate_many(40))
    assert min(shares) >= 2
    assert sum(isinstance(answer, EncodedImage) for answer in answers) >= 35
