"""The registry: complete, true to diffusers, and open to one's own models."""

import math
from inspect import signature

import diffusers
import pytest

from inference.backends.diffusers.generation_spec import GenerationSpec, PipelineArguments
from inference.backends.diffusers.registry import load_registry
from inference.roles import BackendError
from schemas import DocumentError
from warehouse import EncodedImage

MODELS = load_registry().models
PLAYED = {name: model for name, model in MODELS.items() if model.backend == "diffusers"}
SERVICES = (
    "qwen-image",
    "qwen-image-lightning",
    "flux1-krea-dev",
    "qwen-image-edit",
    "qwen-image-edit-lightning",
    "flux1-kontext-dev",
    "flux1-fill-dev",
    "longcat-image-edit",
    "omnigen2",
    "qwen-image-edit-2511",
    "flux2-klein-9b",
)
OWN = """
models:
  klein-4b:
    title: FLUX.2 [klein] 4B
    backend: diffusers
    model: black-forest-labs/FLUX.2-klein-4B
    revision: {revision}
    pipeline: Flux2KleinPipeline
    can: [text]
    defaults: {{steps: 4}}
    licence: Apache-2.0
"""


def words_of(model):
    return frozenset(signature(getattr(diffusers, model.pipeline).__call__).parameters)


def ordinary(model):
    """What it is made for."""
    picture = EncodedImage.white((32, 32))
    images = () if "text" in model.can else (picture,)
    return GenerationSpec(
        "a cat", 1, model.defaults, images, picture if "mask" in model.can else None
    )


def test_the_services_of_the_reference_come_first_and_in_order():
    assert tuple(MODELS) == (*SERVICES, "nano-banana-pro")


@pytest.mark.parametrize("name", PLAYED)
def test_defaults_are_arguments_of_the_pipeline(name):
    model = PLAYED[name]
    words = words_of(model)
    speech, drawing = PipelineArguments(name, model, words), ordinary(model)
    speech.check(drawing)
    said = speech.arguments([drawing])
    assert set(said) <= words
    assert {"prompt", "num_inference_steps", model.guided_by} <= set(said)
    assert ("width" in said) == (model.defaults.size is not None or "mask" in model.can)


@pytest.mark.parametrize("name", PLAYED)
def test_abilities_are_those_of_the_pipeline(name):
    model = PLAYED[name]
    words = words_of(model)
    assert ("mask" in model.can) == ("mask_image" in words)
    assert ("image" in words) == (model.can != ("text",))


def test_weights_are_pinned_unless_they_say_otherwise(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(OWN.format(revision="main"))
    with pytest.raises(DocumentError, match=r"own.yaml:\d+.*`pinned: false`"):
        load_registry(path)
    honest = tmp_path / "honest.yaml"
    honest.write_text(OWN.format(revision="main\n    pinned: false"))
    assert load_registry(honest).find("klein-4b").revision_shown == "main (not pinned)"


def test_own_models_come_beside_the_projects(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(OWN.format(revision="e7b7dc27f91deacad38e78976d1f2b499d76a294"))
    registry = load_registry(path)
    assert set(registry.models) == {*MODELS, "klein-4b"}
    assert registry.find("klein-4b").revision_shown == "e7b7dc27f91d"


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(BackendError, match="no generator 'klein'; there are: qwen-image, "):
        load_registry().find("klein")


@pytest.mark.parametrize("name", [name for name, model in PLAYED.items() if model.lora])
def test_changes_of_a_loras_schedule_are_the_schedulers_words(name):
    lora = PLAYED[name].lora
    schedule = diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    changed = schedule.from_config(schedule.config, **lora.scheduler)
    assert lora.scheduler and dict(changed.config).items() >= lora.scheduler.items()
    assert changed.config.base_shift == pytest.approx(math.log(3))
