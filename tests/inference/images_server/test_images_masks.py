"""Masks as OpenAI's clients send them, and as open servers' do."""

import io

import pytest
import tiny
from PIL import Image
from served import Here, pictures, served

from interleave_foundry.inference.diffusers.choosing import choose
from interleave_foundry.inference.diffusers.drawing import Drawing
from interleave_foundry.inference.diffusers.painter import load_painter
from interleave_foundry.inference.diffusers.settings import DiffusersSettings
from interleave_foundry.inference.images_server.models import Pipeline
from interleave_foundry.warehouse import Picture

SIZE, LEFT = (64, 64), (0, 0, 32, 64)


def png(image):
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def white_on_the_left():
    mask = Image.new("L", SIZE)
    mask.paste(255, LEFT)
    return Picture.of(mask)


def transparent_on_the_left():
    mask = Image.new("RGBA", SIZE, "red")
    mask.paste((0, 0, 0, 0), LEFT)
    return png(mask)


@pytest.mark.slow
def test_what_is_transparent_or_white_is_repainted(tmp_path):
    folder = tiny.build("FluxFillPipeline", tmp_path / "fill")
    choice = choose(DiffusersSettings(model=str(folder), steps=2, dtype="float32"))
    picture, mask = Picture.white(SIZE), white_on_the_left()
    drawing = Drawing("a cat", 1, choice.manner, (picture,), mask)
    drawn = load_painter(choice, "cpu", 1).draw([drawing])
    model = Pipeline(choice)
    with served(model, Here(model)) as server:
        for sent in (transparent_on_the_left(), mask.data):
            answer = server.client().images.edit(
                image=picture.data, mask=sent, prompt="a cat", extra_body={"seed": 1}
            )
            assert pictures(answer) == drawn
