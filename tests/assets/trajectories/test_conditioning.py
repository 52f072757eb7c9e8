"""A profile's generator is checked against `loop.conditioning` before any call."""

import pytest
import yaml

from assets.core.foundry import FoundryResource
from assets.core.profile import FOLDER
from inference.roles import BackendError, max_reference_images


def custom_foundry(folder, **changes):
    content = yaml.safe_load((FOLDER / "sketch.yaml").read_text())
    path = folder / "custom.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return FoundryResource(profile=str(path), root=str(folder / "home"))


def test_nano_banana_accepts_fourteen_reference_images(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "none")
    api = FoundryResource(profile="api", root=str(tmp_path))
    assert api.settings.loop.conditioning == "all"
    assert max_reference_images(api.roles.generator) == 14


def test_generator_of_one_reference_image_is_an_error(tmp_path):
    with pytest.raises(BackendError) as raised:
        _ = custom_foundry(tmp_path, loop={"conditioning": "all"}).roles
    message = str(raised.value)
    assert message.startswith("`loop.conditioning: all` needs a generator that takes several")
    assert "sketch/" in message and "\n" not in message


@pytest.mark.parametrize(("model", "references"), [("flux2-klein-9b", 4), ("flux1-kontext-dev", 1)])
def test_local_generator_reports_its_models_reference_images(tmp_path, model, references):
    roles = {"planner": "sketch", "generator": "diffusers", "critic": "sketch", "scorer": "sketch"}
    foundry = custom_foundry(tmp_path, roles=roles, diffusers={"model": model})
    assert max_reference_images(foundry.roles.generator) == references
