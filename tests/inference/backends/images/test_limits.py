"""Where a generator's limits come from."""

import asyncio
import time

import pytest

from inference.backends.images.backend import ImagesSettings
from inference.backends.images.limits import find_limits
from inference.images_server.models import SKETCH
from inference.loop import check_conditioning
from inference.roles import BackendError, max_reference_images
from inference.settings import LoopSettings
from tests.inference.backends.images.rules_server import (
    generate,
    images_generator,
    images_profile,
    rules_server,
)
from tests.inference.images_server.served_images import LocalReplica, served
from warehouse import EncodedImage, Home

OURS = {"references": 3, "mask": True, "negative_prompt": False, "max_pixels": 4096}
PROMPT = "A meadow"


def limits(*urls, **model):
    profile = images_profile(*urls, **model).images
    assert profile.generator
    return find_limits(profile.generator, profile.endpoints, {})


def test_the_server_comes_first_and_then_what_is_known():
    plain = {"root": None, "task_type": None, "pipeline_class": None}
    registry, edit = "the registry of generators", "Qwen/Qwen-Image-Edit"
    for card, model, references, source in (
        ({"limits": OURS}, {"model": "m", "references": 9}, 3, "told by its server"),
        ({"task_type": "T2I"}, {"model": "m"}, 0, "told by its server"),
        ({}, {"model": edit, "references": 2}, 2, "the profile's `references`"),
        ({}, {"model": edit}, 1, registry),
        ({}, {"model": "flux2-klein-9b"}, 4, registry),
        ({}, {"model": "OmniGen2/OmniGen2"}, None, registry),
        ({"root": "Qwen/Qwen-Image-Edit-2511"}, {"model": "m"}, 3, registry),
        ({"pipeline_class": "FluxKontextPipeline"}, {"model": "m"}, 1, registry),
        ({}, {"model": "gpt-image-2"}, 16, "OpenAI's documentation"),
        ({}, {"model": "m"}, None, "nobody tells: set `references`"),
    ):
        with rules_server("sglang", model["model"], **plain | card) as server:
            found = limits(server.url, **model)
            assert (found.limits.references, found.source) == (references, source)
            backend = images_generator(server.url, **model)
            expected = 1 if references == 0 else references  # an edit has one image at least
            assert max_reference_images(backend) == expected


def test_the_strictest_of_several_servers_counts():
    more = OURS | {"references": 5, "negative_prompt": True, "max_pixels": None}
    with (
        rules_server("vllm-omni", "m", limits=OURS) as one,
        rules_server("vllm-omni", "m", limits=more) as other,
    ):
        found = limits(other.url, one.url, model="m").limits
    assert (found.references, found.negative_prompt, found.max_pixels) == (3, False, 4096)


def test_servers_are_asked_once_and_those_that_do_not_answer_say_nothing():
    with rules_server("vllm-omni", "m", limits=OURS) as server:
        for _ in range(3):
            backend = images_generator(server.url, model="m")
            assert max_reference_images(backend) == 3
            generate(backend, PROMPT)
        assert server.asked == 1
    begin = time.monotonic()
    assert max_reference_images(images_generator("http://127.0.0.1:9", model="other")) is None
    assert time.monotonic() - begin < 60


def test_limits_that_our_server_reports_end_a_run_that_exceeds_them():
    with served(SKETCH, LocalReplica(SKETCH)) as server:
        found = limits(server.url, model="sketch")
        backend = images_generator(server.url, model="sketch")
        assert found.limits == SKETCH.limits.model_copy(update={"max_pixels": 4096 * 4096})
        with pytest.raises(BackendError, match="takes the last one only"):
            check_conditioning(LoopSettings(conditioning="all"), backend)
        for settings, message in (
            ({"negative_prompt": "fog"}, "sketch takes no negative prompt: leave negative_prompt"),
            ({"size": "100x100"}, "the sides of 100x100 are no multiples of 96: choose another"),
        ):
            with pytest.raises(BackendError, match=message):
                generate(images_generator(server.url, model="sketch", **settings), PROMPT)


def test_limits_are_asked_for_off_the_event_loop():
    async def ask() -> list[float]:
        backend, ticks = images_generator(url, model="m"), []
        drawing = asyncio.create_task(backend.generate(PROMPT, (), 1))
        while not drawing.done():
            ticks.append(time.monotonic())
            await asyncio.sleep(0.01)
        drawing.cancel()
        return ticks

    with rules_server("vllm-omni", "m") as server:
        server.delay, url = 0.5, server.url
        assert len(asyncio.run(ask())) > 10


def test_doctor_shows_limits_and_their_source(tmp_path):
    from assets.core.profile import load_profile

    with served(SKETCH, LocalReplica(SKETCH)) as server:
        path = tmp_path / "profile.yaml"
        path.write_text(
            "base: sketch\nroles: {generator: images}\nimages:\n"
            f"  endpoints: [{{url: '{server.url}/v1'}}]\n"
            "  generator: {model: sketch, negative_prompt: fog, edit: {model: gpt-image-2}}\n"
        )
        profile = load_profile(str(path))
        first, edit = profile.section(ImagesSettings).check(profile, Home(tmp_path))
    assert first.what == (
        "images.generator takes one image, no negative prompts (told by its server)"
    )
    assert first.fix == "sketch takes no negative prompt: leave negative_prompt out"
    assert edit.what == (
        "images.generator.edit takes 16 images, no negative prompts (OpenAI's documentation)"
    )
    assert edit.fix is None


def test_images_of_our_server_through_the_backend(tmp_path):
    """All that our dialect has, against the application itself."""
    from PIL import Image

    mask = tmp_path / "mask.png"
    Image.new("RGBA", (192, 192), (0, 0, 0, 0)).save(mask)
    settings = {"size": "192x192", "steps": 4, "guidance": 1.0, "output_format": "webp"}
    with served(SKETCH, LocalReplica(SKETCH)) as server:
        backend = images_generator(
            server.url, model="sketch", output_compression=90, mask=str(mask), **settings
        )
        first = generate(backend, "Draw a meadow with a red flower at the bottom center.")
        edit = "Add a blue bird at the top left. Keep everything else unchanged."
        second = generate(backend, edit, (first,))
    assert first.mime == second.mime == "image/webp"
    assert first.image.size == second.image.size == (192, 192)
    assert first != second
    assert isinstance(second, EncodedImage)
