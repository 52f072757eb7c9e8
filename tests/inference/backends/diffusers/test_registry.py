"""The registry: complete, consistent with diffusers, and extensible."""

import math
from inspect import signature

import diffusers
import pytest

from inference.backends.diffusers.pipeline_runner import GenerationSpec, PipelineArguments
from inference.backends.diffusers.registry import load_registry
from inference.roles import UnusableAnswerError
from schemas import DocumentError
from warehouse import EncodedImage

MODELS = load_registry().models
DIFFUSERS = {name: model for name, model in MODELS.items() if model.backend == "diffusers"}
REFERENCE_MODELS = (
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
CUSTOM = """
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


def parameters_of(model):
    return frozenset(signature(getattr(diffusers, model.pipeline).__call__).parameters)


def typical_spec(model):
    """A request that the model supports."""
    image = EncodedImage.white((32, 32))
    images = () if "text" in model.can else (image,)
    return GenerationSpec(
        "a cat", 1, model.defaults, images, image if "mask" in model.can else None
    )


def test_models_of_the_reference_come_first_and_in_order():
    assert tuple(MODELS) == (
        *REFERENCE_MODELS,
        "nano-banana-pro",
        "qwen-image-2.1",
        "flux2-klein-9b-kv",
    )


def test_defaults_and_abilities_are_those_of_the_pipelines():
    for name, model in DIFFUSERS.items():
        parameters, spec = parameters_of(model), typical_spec(model)
        pipeline_arguments = PipelineArguments(name, model, parameters)
        pipeline_arguments.check(spec)
        arguments = pipeline_arguments.arguments([spec])
        assert set(arguments) <= parameters
        guided = {model.guided_by} - {None}
        assert {"prompt", "num_inference_steps"} | guided <= set(arguments)
        assert guided or not {"guidance_scale", "true_cfg_scale"} & parameters
        assert ("width" in arguments) == (model.defaults.size is not None or "mask" in model.can)
        assert ("mask" in model.can) == ("mask_image" in parameters)
        assert ("image" in parameters) == bool({"edit", "mask"} & {*model.can})
        params = spec.params.model_copy(update={"guidance": 4.0, "negative_prompt": "rain"})
        takes = pipeline_arguments._ignored(params) is None
        assert ("negative_prompt" in model.can) == takes


def test_guidance_is_refused_where_there_is_none():
    model = MODELS["flux2-klein-9b-kv"]
    params = model.defaults.model_copy(update={"guidance": 4.0})
    with pytest.raises(UnusableAnswerError, match="takes no guidance; leave it out"):
        PipelineArguments("kv", model, parameters_of(model)).check(GenerationSpec("a", 1, params))


def test_weights_are_pinned_unless_declared_otherwise(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(CUSTOM.format(revision="main"))
    with pytest.raises(DocumentError, match=r"own.yaml:\d+.*`pinned: false`"):
        load_registry(path)
    declared = tmp_path / "declared.yaml"
    declared.write_text(CUSTOM.format(revision="main\n    pinned: false"))
    assert load_registry(declared).find("klein-4b").revision_label == "main (not pinned)"


def test_custom_models_are_added(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(CUSTOM.format(revision="e7b7dc27f91deacad38e78976d1f2b499d76a294"))
    registry = load_registry(path)
    assert set(registry.models) == {*MODELS, "klein-4b"}
    assert registry.find("klein-4b").revision_label == "e7b7dc27f91d"


def test_scheduler_changes_of_a_lora_are_parameters_of_the_scheduler():
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    loras = [model.lora for model in DIFFUSERS.values() if model.lora]
    assert loras
    for lora in loras:
        changed = scheduler.from_config(scheduler.config, **lora.scheduler)
        assert lora.scheduler and dict(changed.config).items() >= lora.scheduler.items()
        assert changed.config.base_shift == pytest.approx(math.log(3))
