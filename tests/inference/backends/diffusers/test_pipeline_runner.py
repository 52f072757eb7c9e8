"""The painter where things are scarce, broken or extra: memory, weights, patience, a LoRA."""

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from inference.backends.diffusers.generation_spec import GenerationSpec
from inference.backends.diffusers.model_selection import select_model
from inference.backends.diffusers.pipeline_runner import ImageExceedsMemory, load_pipeline_runner
from inference.backends.diffusers.sampling_params import SamplingParams
from inference.backends.diffusers.settings import DiffusersSettings
from inference.roles import BackendError, RetryableError
from warehouse import EncodedImage

ADAPTED = """
models:
  tiny-lightning:
    title: Tiny
    backend: diffusers
    model: {model}
    pipeline: QwenImagePipeline
    lora: {{model: {folder}, file: lora.safetensors, scheduler: {{shift: 3.0}}}}
    can: [text]
    guided_by: true_cfg_scale
    defaults: {{steps: 2, guidance: 1.0, size: 64x64}}
    licence: none
"""


class Cramped:
    """A pipeline with memory for a few pictures at once, which notes how many were tried."""

    def __init__(self, pipeline, room):
        self._pipeline, self._room, self.tried = pipeline, room, []

    def __getattr__(self, name):
        return getattr(self._pipeline, name)

    def __call__(self, **arguments):
        self.tried.append(len(arguments["prompt"]))
        if self.tried[-1] > self._room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return self._pipeline(**arguments)


def chosen(folder, **settings):
    quick = {"steps": 2, "size": "64x64", "dtype": "float32"} | settings
    return select_model(DiffusersSettings(model=str(folder), **quick))


@pytest.fixture
def choice(pipelines):
    return chosen(pipelines("FluxPipeline"))


def drawings(choice, count):
    return [GenerationSpec("a cat", seed, choice.manner) for seed in range(count)]


def test_a_batch_too_large_for_the_memory_is_halved_once_and_for_all(choice):
    painter = load_pipeline_runner(choice, "cpu", 4)
    cramped = painter._pipeline = Cramped(painter._pipeline, room=2)
    assert all(isinstance(drawn, EncodedImage) for drawn in painter.draw(drawings(choice, 5)))
    assert cramped.tried == [4, 2, 2, 1]
    painter.draw(drawings(choice, 4))
    assert cramped.tried[4:] == [2, 2]


def test_a_picture_that_does_not_fit_is_one_line_and_costs_the_others_nothing(choice):
    painter = load_pipeline_runner(choice, "cpu", 4)
    endless = SamplingParams(size="100000000x100000000").over(
        choice.manner
    )  # more than any address
    drawn, not_drawn = painter.draw(
        [GenerationSpec("a cat", 1, choice.manner), GenerationSpec("a cat", 1, endless)]
    )
    assert isinstance(drawn, EncodedImage)
    assert isinstance(not_drawn, ImageExceedsMemory)
    said = str(not_drawn)
    assert "100000000x100000000 does not fit into the memory of cpu" in said and "\n" not in said


def test_what_nobody_waits_for_any_more_is_not_finished(choice):
    painter, asked = load_pipeline_runner(choice, "cpu", 4), []

    def given_up():
        asked.append(None)
        return len(asked) > 1

    long = SamplingParams(steps=50).over(choice.manner)
    painter.draw([GenerationSpec("a cat", 1, long)], given_up)
    assert len(asked) == 2  # before the draw, and after its first step
    (unwanted,) = painter.draw(drawings(choice, 1), lambda: True)
    assert isinstance(unwanted, RetryableError)


def test_what_is_repainted_in_part_keeps_its_size(pipelines):
    choice = chosen(pipelines("FluxFillPipeline"), size=None)
    size = (100, 70)
    picture, mask = EncodedImage.white(size), EncodedImage.of(Image.new("L", size, 255))
    drawing = GenerationSpec("a cat", 1, choice.manner, (picture,), mask)
    (drawn,) = load_pipeline_runner(choice, "cpu", 1).draw([drawing])
    assert drawn.image.size == size


def test_a_lora_and_its_schedule_count(pipelines, tmp_path):
    folder = pipelines("QwenImagePipeline")
    plain = chosen(folder, guidance=1.0)
    layer = "transformer.transformer_blocks.0.attn.to_q"
    down, up = torch.randn(4, 32), torch.randn(32, 4)
    weights = {f"{layer}.lora_A.weight": down, f"{layer}.lora_B.weight": up}
    save_file(weights, tmp_path / "lora.safetensors")
    registry = tmp_path / "own.yaml"
    registry.write_text(ADAPTED.format(model=folder, folder=tmp_path))
    adapted = select_model(DiffusersSettings(model="tiny-lightning", registry=registry))
    assert adapted.identity != plain.identity
    painter = load_pipeline_runner(adapted, "cpu", 1)
    assert painter._pipeline.scheduler.config.shift == 3.0
    painter._pipeline.scheduler = load_pipeline_runner(plain, "cpu", 1)._pipeline.scheduler
    drawing = GenerationSpec("a cat", 1, adapted.manner)
    by_lora, by_model = (
        each.draw([drawing])[0] for each in (painter, load_pipeline_runner(plain, "cpu", 1))
    )
    assert isinstance(by_lora, EncodedImage) and isinstance(by_model, EncodedImage)
    assert by_lora != by_model


def test_the_weights_of_the_last_model_are_kept(choice):
    first, again = load_pipeline_runner(choice, "cpu", 4), load_pipeline_runner(choice, "cpu", 1)
    assert first._pipeline is again._pipeline


def test_what_cannot_be_loaded_is_one_line(tmp_path):
    (tmp_path / "model_index.json").write_text(
        '{"_class_name": "FluxPipeline", "vae": ["diffusers", "AutoencoderKL"]}'
    )
    with pytest.raises(BackendError, match="cannot be loaded on cpu: ") as caught:
        load_pipeline_runner(chosen(tmp_path), "cpu", 1)
    assert "\n" not in str(caught.value)
