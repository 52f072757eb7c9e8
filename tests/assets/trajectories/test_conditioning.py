"""Whether a profile's generator can do what its loop asks for, found out before any call."""

import pytest
import yaml

from assets.core.foundry import FoundryResource
from assets.core.profile import FOLDER
from inference.roles import BackendError, max_reference_images


def own(folder, **changes):
    content = yaml.safe_load((FOLDER / "sketch.yaml").read_text())
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return FoundryResource(profile=str(path), root=str(folder / "home"))


def test_nano_banana_sees_the_whole_story(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "none")
    api = FoundryResource(profile="api", root=str(tmp_path))
    assert api.settings.loop.conditioning == "all"
    assert max_reference_images(api.roles.generator) == 14


def test_a_generator_of_one_picture_is_refused(tmp_path):
    with pytest.raises(BackendError) as raised:
        _ = own(tmp_path, loop={"conditioning": "all"}).roles
    said = str(raised.value)
    assert said.startswith("`loop.conditioning: all` needs a generator that looks at several")
    assert "sketch/" in said and "\n" not in said


@pytest.mark.parametrize(("model", "references"), [("flux2-klein-9b", 4), ("flux1-kontext-dev", 1)])
def test_a_generator_in_this_process_says_what_its_model_looks_at(tmp_path, model, references):
    roles = {"planner": "sketch", "generator": "diffusers", "critic": "sketch", "scorer": "sketch"}
    built = own(tmp_path, roles=roles, diffusers={"model": model})
    assert max_reference_images(built.roles.generator) == references
