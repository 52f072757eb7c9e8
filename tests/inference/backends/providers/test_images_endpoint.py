"""The generator behind an images endpoint, through the official client."""

import asyncio
import base64

import pytest

from inference.backends.factory import Backends
from inference.roles import RetryableError, max_reference_images
from tests.inference.backends.providers.faulty_provider import provider
from warehouse import EncodedImage, Home

GOAL = "Draw a meadow with a red flower at the bottom center."
EDIT = "Add a blue bird at the top left. Keep everything else unchanged."


def generator(*servers, **model):
    endpoints = [{"url": f"{server.url}/v1", "concurrency": 2} for server in servers]
    settings = {
        "endpoints": endpoints,
        "timeout_seconds": 2,
        "generator": {"model": "klein", **model},
    }
    roles = {"planner": "sketch", "critic": "sketch", "scorer": "sketch", "generator": "images"}
    profile = Backends.model_validate({"roles": roles, "images": settings})
    return profile.build(Home("memory://images")).generator


def drawn(player, prompt=GOAL, images=(), seed=1):
    return asyncio.run(player.generate(prompt, images, seed))


def test_a_picture_is_drawn_and_edited():
    with provider() as server:
        player = generator(server, steps=4, guidance=1.0, size="192x192")
        first = drawn(player)
        second = drawn(player, EDIT, (first,), seed=2)
        draw, edit = server.bodies
    assert first.image.size == second.image.size == (192, 192)
    assert first != second
    assert draw["prompt"] == GOAL
    assert (draw["seed"], draw["num_inference_steps"], draw["size"]) == (1, 4, "192x192")
    assert edit["pictures"] == [first.sha256]
    assert (edit["seed"], edit["guidance_scale"]) == ("2", "1.0")


def test_an_edit_may_look_at_several_pictures():
    given = [EncodedImage.white((side, 16)) for side in (16, 24)]
    with provider() as server:
        drawn(generator(server), GOAL, given)
    assert server.bodies[0]["pictures"] == [picture.sha256 for picture in given]


@pytest.mark.parametrize(
    ("model", "references"),
    [("OmniGen2/OmniGen2", None), ("Qwen/Qwen-Image-Edit-2511", 3), ("Qwen/Qwen-Image-Edit", 1)],
)
def test_how_many_pictures_it_looks_at_is_known_of_the_registrys_models(model, references):
    with provider() as server:
        assert max_reference_images(generator(server, model=model)) == references
        assert max_reference_images(generator(server, model="anything")) is None


@pytest.mark.parametrize(
    ("weather", "said"),
    [
        (["empty"], "answered without a picture"),
        (["!!!"], "unreadable picture"),
        ([base64.b64encode(b"no picture").decode()], "answered with no picture"),
        (
            [base64.b64encode(EncodedImage.white((8, 8)).data).decode()],
            "drew 8x8 instead of 192x192",
        ),
        (["error"], "500"),
        (["reset"], "no connection"),
    ],
)
def test_what_is_no_answer_may_be_one_later(weather, said):
    with provider() as server:
        server.scripts = list(weather)
        with pytest.raises(RetryableError, match=said):
            drawn(generator(server, size="192x192"))


def test_endpoints_share_the_work_and_do_without_one_that_is_down():
    with provider() as first, provider() as second:
        first.weather.latency = second.weather.latency = 0.02
        player = generator(first, second)

        async def many(count):
            draws = (player.generate(GOAL, (), seed) for seed in range(count))
            return await asyncio.gather(*draws, return_exceptions=True)

        asyncio.run(many(8))
        shares = sum(first.requests.values()), sum(second.requests.values())
        first.weather.faults = {"reset": 1.0}
        answers = asyncio.run(many(40))
    assert min(shares) >= 2
    assert sum(isinstance(answer, EncodedImage) for answer in answers) >= 35
