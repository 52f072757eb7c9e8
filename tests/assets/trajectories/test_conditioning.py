"""A profile's generator is checked against `loop.conditioning` before any call."""

import json

import pytest

from assets.core.foundry import FoundryResource
from inference.roles import BackendError, max_reference_images

ROLES = dict.fromkeys(("planner", "critic", "scorer"), "sketch")


def references_of(folder, profile, **sections):
    """Reference images that the profile's generator takes."""
    foundry = FoundryResource(profile=profile, root=str(folder), sections=json.dumps(sections))
    return max_reference_images(foundry.roles.generator)


def test_generators_say_how_many_reference_images_they_take(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "none")
    assert references_of(tmp_path, "api") == 14
    roles = ROLES | {"generator": "diffusers"}
    for model, references in (("flux2-klein-9b", 4), ("flux1-kontext-dev", 1)):
        settings = {"roles": roles, "diffusers": {"model": model}}
        assert references_of(tmp_path, "sketch", **settings) == references


def test_generator_of_one_reference_image_is_an_error(tmp_path):
    with pytest.raises(BackendError) as raised:
        references_of(tmp_path, "sketch", loop={"conditioning": "all"})
    message = str(raised.value)
    assert message.startswith("`loop.conditioning: all` needs a generator that takes several")
    assert "sketch/" in message and "\n" not in message
