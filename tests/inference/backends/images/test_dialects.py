"""Requests in every dialect, sent by the official client and held against the server's rules."""

import base64

import pytest
from pydantic import ValidationError

from inference.backends.images.dialects import DIALECTS
from inference.images_server.openai_images import ImageRequest
from inference.roles import BackendError, RetryableError, UnusableAnswerError
from tests.inference.backends.images.rules_server import (
    RULES,
    generate,
    images_generator,
    images_profile,
    rules_server,
)
from tests.inference.backends.providers.faulty_provider import provider
from warehouse import EncodedImage

PROMPT = "A meadow with a red flower"
IMAGES = [EncodedImage.white((side, 32)) for side in (32, 48)]
DIFFUSION = {"steps": 4, "guidance": 1.5, "negative_prompt": "fog"}
HOSTED = {"quality": "high", "background": "opaque", "moderation": "low"}
FORMAT = {"output_format": "webp", "output_compression": 80}

# All that a dialect has, and what arrives of it: first image, edit.
SETTINGS = {
    "openai": (
        "gpt-image-1.5",
        HOSTED | FORMAT | {"size": "1536x1024", "input_fidelity": "high"},
        {"quality": "high", "moderation": "low", "background": "opaque"},
        {"quality": "high", "input_fidelity": "high", "output_compression": "80"},
    ),
    "vllm-omni": (
        "Qwen/Qwen-Image-Edit-2511",
        DIFFUSION | FORMAT | {"size": "64x96", "background": "opaque"},
        {"seed": 1, "num_inference_steps": 4, "guidance_scale": 1.5, "negative_prompt": "fog"},
        {"seed": "1", "guidance_scale": "1.5", "output_compression": "80", "background": "opaque"},
    ),
    "sglang": (
        "Qwen/Qwen-Image-Edit-2511",
        DIFFUSION | FORMAT | {"size": "64x96", "background": "opaque"},
        {
            "seed": 1,
            "num_inference_steps": 4,
            "response_format": "b64_json",
            "background": "opaque",
        },
        {"seed": "1", "negative_prompt": "fog", "response_format": "b64_json"},
    ),
}


def test_every_dialect_of_other_servers_has_rules():
    assert set(RULES) == set(DIALECTS) - {"ours"} == set(SETTINGS)
    assert all(rules["source"] for rules in RULES.values())


def test_our_dialect_has_fields_that_our_server_has():
    """`test_limits.py` sends them to the application."""
    ours = DIALECTS["ours"]
    assert {*ours.generation.values(), *ours.edit.values()} <= set(ImageRequest.model_fields)


@pytest.mark.parametrize("dialect", SETTINGS)
def test_every_parameter_of_a_dialect_is_accepted_and_used(dialect):
    model, settings, first, edit = SETTINGS[dialect]
    with rules_server(dialect, model) as server:
        backend = images_generator(server.url, model=model, **settings)
        drawn = generate(backend, PROMPT)
        edited = generate(backend, PROMPT, IMAGES)
        plain = images_generator(server.url, model=model)
        generate(plain, PROMPT)
        generate(plain, PROMPT, IMAGES)
    assert [request.endpoint for request in server.requests] == ["generations", "edits"] * 2
    assert not any(request.ignored for request in server.requests)
    seeds = [request.fields.get("seed") for request in server.requests[2:]]
    assert seeds == ([None, None] if dialect == "openai" else [1, "1"])
    assert first.items() <= server.requests[0].fields.items()
    assert edit.items() <= server.requests[1].fields.items()
    assert server.requests[1].images == IMAGES
    assert "{}x{}".format(*drawn.image.size) == settings["size"]
    assert drawn.mime == edited.mime == "image/webp"


def test_a_profile_can_name_the_dialect():
    """The other dialect's request is refused, or has no image in its answer."""
    for dialect, named in (("vllm-omni", "openai"), ("openai", "sglang"), ("sglang", "openai")):
        model = SETTINGS[dialect][0]
        with rules_server(dialect, model) as server:
            generate(images_generator(server.url, model=model, dialect=dialect), PROMPT)
            other = images_generator(server.url, model=model, dialect=named)
            if dialect == "vllm-omni":
                generate(other, PROMPT)  # a request with fewer fields
                assert "seed" not in server.requests[-1].fields
            else:
                with pytest.raises((UnusableAnswerError, RetryableError)):
                    generate(other, PROMPT)


def test_sizes_are_those_that_openais_models_draw():
    for model, wanted, drawn in (
        ("gpt-image-1-mini", "768x768", (1024, 1024)),
        ("gpt-image-1.5", "1920x1080", (1536, 1024)),
        ("gpt-image-1.5", "600x900", (1024, 1536)),
        ("gpt-image-2", "1000x600", (992, 608)),
        ("gpt-image-2.5-flare", "1536x864", (1536, 864)),
    ):
        with rules_server("openai", model) as server:
            image = generate(images_generator(server.url, model=model, size=wanted), PROMPT)
        assert image.image.size == drawn


def test_settings_that_a_dialect_lacks_are_errors_of_the_profile():
    for settings, message in (
        (DIFFUSION, "steps, guidance, negative_prompt: dialect openai has no such parameter"),
        ({"quality": "max"}, "gpt-image-1.5 takes auto or low or medium or high"),
        ({"dialect": "sglang", "quality": "low"}, "quality: dialect sglang has no such parameter"),
        ({"model": "gpt-image-2", "input_fidelity": "low"}, "gpt-image-2 has none; leave it out"),
        ({"model": "gpt-image-2", "size": "4000x100"}, "draws up to 3840x2160"),
        ({"model": "dall-e-3"}, "OpenAI has retired dall-e-3"),
        ({"output_compression": 50}, "set output_format to jpeg or webp"),
        ({"background": "transparent", "output_format": "jpeg"}, "jpeg has no transparency"),
        ({"mask": "nowhere.png"}, "there is no file nowhere.png"),
        ({"edit": {"model": "a", "edit": {"model": "b"}}}, "two models at most"),
    ):
        with pytest.raises(ValidationError, match=message):
            images_profile("http://127.0.0.1:9", **{"model": "gpt-image-1.5"} | settings)


def test_settings_that_a_server_lacks_end_the_run_before_a_request():
    with rules_server("sglang", "m") as server:
        backend = images_generator(server.url, model="m", quality="low")
        with pytest.raises(BackendError, match="quality: dialect sglang has no such parameter"):
            generate(backend, PROMPT)
    assert server.requests == []


def test_endpoints_of_one_generator_may_speak_different_dialects():
    with rules_server("sglang", "m") as one, rules_server("vllm-omni", "m") as other:
        backend = images_generator(one.url, other.url, model="m", steps=3)
        for seed in range(8):
            generate(backend, PROMPT, seed=seed)
            if one.requests and other.requests:
                break
        assert len(one.requests) + len(other.requests) == seed + 1
        assert (one.asked, other.asked) == (1, 1)


def test_a_mask_is_sent_with_edits_and_belongs_to_the_settings(tmp_path):
    from PIL import Image

    path = tmp_path / "mask.png"
    Image.new("RGBA", (48, 32), (0, 0, 0, 0)).save(path)
    with rules_server("openai", "gpt-image-2") as server:
        backend = images_generator(server.url, model="gpt-image-2", mask=str(path))
        generate(backend, PROMPT)
        generate(backend, PROMPT, IMAGES[1:])
        with pytest.raises(UnusableAnswerError, match="not 48x32 for 32x32"):
            generate(backend, PROMPT, IMAGES[:1])
    assert server.requests[0].mask is None
    assert server.requests[1].mask.data == path.read_bytes()
    Image.new("RGBA", (48, 32), (9, 9, 9, 0)).save(path)
    assert images_generator(server.url, model="gpt-image-2", mask=str(path)).model != backend.model


def test_faults_are_retryable():
    small, broken = EncodedImage.white((8, 8)).data, b"no picture"
    with provider() as server:
        backend = images_generator(server.url, model="klein", size="192x192")
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
                generate(backend, PROMPT)
