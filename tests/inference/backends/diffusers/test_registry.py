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


def test_custom_models_are_added_with_weights_that_are_pinned_or_declared_not_to_be(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(CUSTOM.format(revision="main"))
    with pytest.raises(DocumentError, match=r"own.yaml:\d+.*`pinned: false`"):
        load_registry(path)
    for number, (revision, label) in enumerate(
        (
            ("e7b7dc27f91deacad38e78976d1f2b499d76a294", "e7b7dc27f91d"),
            ("main\n    pinned: false", "main (not pinned)"),
        )
    ):
        custom = tmp_path / f"{number}.yaml"
        custom.write_text(CUSTOM.format(revision=revision))
        registry = load_registry(custom)
        assert set(registry.models) == {*MODELS, "klein-4b"}
        assert registry.find("klein-4b").revision_label == label


def test_scheduler_changes_of_a_lora_are_parameters_of_the_scheduler():
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    loras = [model.lora for model in DIFFUSERS.values() if model.lora]
    assert loras
    for lora in loras:
        changed = scheduler.from_config(scheduler.config, **lora.scheduler)
        assert lora.scheduler and dict(changed.config).items() >= lora.scheduler.items()
        assert changed.config.base_shift == pytest.approx(math.log(3))
