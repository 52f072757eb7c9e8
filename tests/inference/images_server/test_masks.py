"""Masks as OpenAI's clients send them, and as open servers' do."""

import io

import pytest
from PIL import Image

from inference.backends.diffusers import tiny
from inference.backends.diffusers.pipeline_runner import GenerationSpec, PipelineRunner
from inference.backends.diffusers.registry import DiffusersSettings, select_model
from inference.images_server.models import servable_pipeline
from tests.inference.images_server.served_images import LocalReplica, images_of, served
from warehouse import EncodedImage

SIZE, LEFT = (64, 64), (0, 0, 32, 64)


def png(image):
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def white_on_the_left():
    mask = Image.new("L", SIZE)
    mask.paste(255, LEFT)
    return EncodedImage.of(mask)


def transparent_on_the_left():
    mask = Image.new("RGBA", SIZE, "red")
    mask.paste((0, 0, 0, 0), LEFT)
    return png(mask)


@pytest.mark.slow
def test_transparent_or_white_area_is_repainted(tmp_path):
    folder = tiny.build("FluxFillPipeline", tmp_path / "fill")
    choice = select_model(DiffusersSettings(model=str(folder), steps=2, dtype="float32"))
    image, mask = EncodedImage.white(SIZE), white_on_the_left()
    spec = GenerationSpec("a cat", 1, choice.params, (image,), mask)
    expected = PipelineRunner(choice, "cpu", 1).draw([spec])
    model = servable_pipeline(choice)
    with served(model, LocalReplica(model)) as server:
        for sent in (transparent_on_the_left(), mask.data):
            answer = server.client().images.edit(
                image=image.data, mask=sent, prompt="a cat", extra_body={"seed": 1}
            )
            assert images_of(answer) == expected
