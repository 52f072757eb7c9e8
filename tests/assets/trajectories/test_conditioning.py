"""Whether a profile's generator can do what its loop asks for, found out before any call."""

import pytest
import yaml

from interleave_foundry.assets.foundry import Foundry
from interleave_foundry.assets.profile import FOLDER
from interleave_foundry.inference.roles import BackendError, references_of


def own(folder, **changes):
    content = yaml.safe_load((FOLDER / "sketch.yaml").read_text())
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return Foundry(profile=str(path), root=str(folder / "home"))


def test_nano_banana_sees_the_whole_story(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "none")
    api = Foundry(profile="api", root=str(tmp_path))
    assert api.settings.loop.conditioning == "all"
    assert references_of(api.roles.generator) == 14


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
    assert references_of(built.roles.generator) == references
