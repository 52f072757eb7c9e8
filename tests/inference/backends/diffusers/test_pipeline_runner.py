"""The pipeline runner: lack of memory, cancellation, broken weights, a LoRA."""

from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from inference.backends.diffusers.backend import DiffusersSettings, select_model
from inference.backends.diffusers.pipeline_runner import (
    GenerationSpec,
    ImageExceedsMemory,
    PipelineRunner,
)
from inference.backends.diffusers.registry import SamplingParams
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


class LimitedPipeline:
    """A pipeline with memory for a few images at once, which records the batch sizes."""

    def __init__(self, pipeline, max_batch):
        self._pipeline, self._max_batch, self.batches = pipeline, max_batch, []

    def __getattr__(self, name):
        return getattr(self._pipeline, name)

    def __call__(self, **arguments):
        self.batches.append(len(arguments["prompt"]))
        if self.batches[-1] > self._max_batch:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return self._pipeline(**arguments)


def select(folder, **settings):
    quick = {"steps": 2, "size": "64x64", "dtype": "float32"} | settings
    return select_model(DiffusersSettings(model=str(folder), **quick))


@pytest.fixture
def selected(pipelines):
    return select(pipelines("FluxPipeline"))


def specs(selected, count):
    return [GenerationSpec("a cat", seed, selected.params) for seed in range(count)]


def test_a_batch_too_large_for_the_memory_is_halved_permanently(selected):
    runner = PipelineRunner(selected, "cpu", 4)
    limited = runner._pipeline = LimitedPipeline(runner._pipeline, max_batch=2)
    assert all(isinstance(image, EncodedImage) for image in runner.draw(specs(selected, 5)))
    assert limited.batches == [4, 2, 2, 1]
    runner.draw(specs(selected, 4))
    assert limited.batches[4:] == [2, 2]
    first, again = (PipelineRunner(selected, "cpu", 4), PipelineRunner(selected, "cpu", 1))
    assert first._pipeline is again._pipeline, "the last model's weights are cached"


def test_parts_that_wait_elsewhere_draw_the_same_images(pipelines):
    folder = pipelines("QwenImagePipeline")
    chosen = [select(folder, offload=offload) for offload in (False, True)]
    assert chosen[0].identity == chosen[1].identity
    drawn = [PipelineRunner(each, "cpu", 4).draw(specs(each, 2)) for each in chosen]
    assert [image.sha256 for image in drawn[0]] == [image.sha256 for image in drawn[1]]
    runner = PipelineRunner(chosen[1], "cpu", 4)
    assert len(runner._pipeline._all_hooks) == 3, "text encoder, transformer and decoder take turns"


def test_an_image_that_exceeds_memory_does_not_affect_others(selected):
    runner = PipelineRunner(selected, "cpu", 4)
    # More than any address space.
    huge = SamplingParams(size="100000000x100000000").over(selected.params)
    image, error = runner.draw(
        [GenerationSpec("a cat", 1, selected.params), GenerationSpec("a cat", 1, huge)]
    )
    assert isinstance(image, EncodedImage)
    assert isinstance(error, ImageExceedsMemory)
    message = str(error)
    assert (
        "100000000x100000000 does not fit into the memory of cpu" in message and "\n" not in message
    )


def test_a_cancelled_image_is_not_finished(selected):
    runner, checks = PipelineRunner(selected, "cpu", 4), []

    def is_cancelled():
        checks.append(None)
        return len(checks) > 1

    long = SamplingParams(steps=50).over(selected.params)
    runner.draw([GenerationSpec("a cat", 1, long)], is_cancelled)
    assert len(checks) == 2  # before the draw, and after its first step
    (result,) = runner.draw(specs(selected, 1), lambda: True)
    assert isinstance(result, RetryableError)


def test_what_is_transparent_becomes_white(selected):
    runner = PipelineRunner(selected, "cpu", 1)
    half = Image.new("RGBA", (64, 64), (255, 0, 0, 128))
    drawn = SimpleNamespace(images=[half])
    runner._pipeline = lambda **_: drawn
    (image,) = runner.draw(specs(selected, 1))
    assert image.image.getpixel((0, 0)) == (255, 127, 127)


def test_a_repainted_image_keeps_its_size(pipelines):
    selected = select(pipelines("FluxFillPipeline"), size=None)
    size = (100, 70)
    image, mask = EncodedImage.white(size), EncodedImage.of(Image.new("L", size, 255))
    spec = GenerationSpec("a cat", 1, selected.params, (image,), mask)
    (result,) = PipelineRunner(selected, "cpu", 1).draw([spec])
    assert result.image.size == size


def test_a_lora_and_its_scheduler_are_applied(pipelines, tmp_path):
    folder = pipelines("QwenImagePipeline")
    base = select(folder, guidance=1.0)
    layer = "transformer.transformer_blocks.0.attn.to_q"
    down, up = torch.randn(4, 32), torch.randn(32, 4)
    weights = {f"{layer}.lora_A.weight": down, f"{layer}.lora_B.weight": up}
    save_file(weights, tmp_path / "lora.safetensors")
    registry = tmp_path / "own.yaml"
    registry.write_text(ADAPTED.format(model=folder, folder=tmp_path))
    adapted = select_model(DiffusersSettings(model="tiny-lightning", registry=registry))
    assert adapted.identity != base.identity
    runner = PipelineRunner(adapted, "cpu", 1)
    assert runner._pipeline.scheduler.config.shift == 3.0
    runner._pipeline.scheduler = PipelineRunner(base, "cpu", 1)._pipeline.scheduler
    spec = GenerationSpec("a cat", 1, adapted.params)
    runners = (runner, PipelineRunner(base, "cpu", 1))
    by_lora, by_model = (each.draw([spec])[0] for each in runners)
    assert isinstance(by_lora, EncodedImage) and isinstance(by_model, EncodedImage)
    assert by_lora != by_model


def test_a_failed_load_is_one_line(tmp_path):
    (tmp_path / "model_index.json").write_text(
        '{"_class_name": "FluxPipeline", "vae": ["diffusers", "AutoencoderKL"]}'
    )
    with pytest.raises(BackendError, match="cannot be loaded on cpu: ") as caught:
        PipelineRunner(select(tmp_path), "cpu", 1)
    assert "\n" not in str(caught.value)
