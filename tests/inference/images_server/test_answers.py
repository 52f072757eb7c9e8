"""What the images server answers with: formats, links, streams, limits, masks and canvases."""

import base64
import io
from dataclasses import replace

import openai
import pytest
from PIL import Image

from inference.backends.diffusers import tiny
from inference.backends.diffusers.backend import DiffusersSettings, select_model
from inference.backends.diffusers.pipeline_runner import GenerationSpec, PipelineRunner
from inference.backends.diffusers.registry import load_registry
from inference.backends.images.limits import GeneratorLimits, limits_of
from inference.http.errors import APIError
from inference.images_server import openai_images
from inference.images_server.models import SKETCH, DrawRejected, servable_pipeline
from inference.images_server.openai_images import LINKS, LinkedImages, preview_steps
from tests.inference.images_server.served_images import LocalReplica, images_of, served
from warehouse import EncodedImage

MEADOW = "Draw a meadow with a red flower at the bottom center."
SIZE, LEFT, RIGHT = (64, 64), (0, 0, 32, 64), (32, 0, 64, 64)


@pytest.fixture(scope="module")
def sketch():
    with served(SKETCH, LocalReplica(SKETCH)) as server:
        yield server


@pytest.fixture(scope="module")
def klein(tmp_path_factory):
    """A tiny text and edit model, of ten steps, its replica, and a server."""
    folder = tiny.build("Flux2KleinPipeline", tmp_path_factory.mktemp("klein") / "klein")
    selected = select_model(DiffusersSettings(model=str(folder), steps=10, size="64x64"))
    model = servable_pipeline(selected)
    replica = LocalReplica(model)
    with served(model, replica) as server:
        yield selected, replica, server


def drawn(selected, **fields):
    [image] = PipelineRunner(selected, "cpu", 1).draw([GenerationSpec("a cat", 1, **fields)])
    return image


def test_images_have_the_requested_format_and_compression(sketch):
    def image(form, **compression):
        answer = sketch.client().images.generate(
            prompt=MEADOW, output_format=form, extra_body={"seed": 1}, **compression
        )
        [image] = images_of(answer)
        assert (image.mime, answer.output_format) == (f"image/{form}", form)
        return image

    assert len({image(form) for form in ("png", "jpeg", "webp")}) == 3
    sizes = [len(image("jpeg", output_compression=share).data) for share in (10, 80, 100)]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]


def test_links_expire_and_are_bounded(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(openai_images, "monotonic", lambda: now[0])
    store = LinkedImages(seconds=10, max_bytes=100)
    names = []
    for _ in range(3):
        names.append(store.add(b"x" * 40, "image/png").removeprefix(LINKS))
        now[0] += 4
    with pytest.raises(APIError, match="not any more"):
        store.get(names[0])  # three are too many bytes
    assert store.get(names[2]) == ("image/png", b"x" * 40)
    now[0] = 15
    with pytest.raises(APIError, match="not any more"):
        store.get(names[1])
    assert len(store.get(names[2])[1]) == 40


def test_a_stream_has_partial_images_and_the_image(klein):
    _, _, server = klein
    images, seed = server.client().images, {"seed": 1}
    events = list(images.generate(prompt="a cat", stream=True, partial_images=2, extra_body=seed))
    [expected] = images_of(images.generate(prompt="a cat", extra_body=seed))
    edited = list(
        images.edit(
            image=expected.data, prompt="a dog", stream=True, partial_images=1, output_format="jpeg"
        )
    )
    partial, final = "image_generation.partial_image", "image_generation.completed"
    assert [event.type for event in events] == [partial, partial, final]
    assert [event.partial_image_index for event in events[:2]] == [0, 1]
    *previews, last = [event.b64_json for event in events]
    assert EncodedImage(base64.b64decode(last)) == expected
    assert len({*previews, last}) == 3
    kinds = [event.type for event in edited]
    assert kinds == ["image_edit.partial_image", "image_edit.completed"]
    assert edited[-1].output_format == "jpeg" and edited[-1].size == "64x64"


def test_streams_are_counted_by_how_they_end():
    with served(SKETCH, LocalReplica(SKETCH)) as server:
        images = server.client().images
        [event] = images.generate(prompt=MEADOW, stream=True, partial_images=3)
        assert event.type == "image_generation.completed"  # it has no steps, so no partial ones
        with pytest.raises(openai.APIError, match="multiple of 96"):
            list(images.generate(prompt=MEADOW, size="100x100", stream=True))
        with pytest.raises(openai.BadRequestError, match="at most 500 steps"):
            images.generate(prompt=MEADOW, stream=True, extra_body={"num_inference_steps": 501})
        counted = server.metrics()
        assert counted["interleave_images_requests_in_flight"] == 0
    requests = 'interleave_images_requests_total{{endpoint="generations",status="{}"}}'
    assert counted[requests.format(200)] == 1 and counted[requests.format(400)] == 2


def test_partial_images_take_at_most_half_of_the_steps_each():
    expected = {
        (28, 3): [4, 9, 14],
        (4, 3): [1, 2],
        (4, 1): [2],
        (1, 3): [],
        (None, 2): [],
        (50, 0): [],
    }
    assert {case: preview_steps(*case) for case in expected} == expected


class RecordingReplica(LocalReplica):
    async def draw(self, spec):
        self.drawn = spec
        return await super().draw(spec)


def test_a_model_that_only_edits_draws_first_images_on_white():
    editor = replace(SKETCH, needs_canvas=True)
    replica = RecordingReplica(editor)
    with served(editor, replica, allowed={"pixels": 100_000}) as server:
        [entry] = server.client().models.list()
        server.client().images.generate(prompt=MEADOW)
    assert replica.drawn.images == (EncodedImage.white((192, 192)),)
    assert GeneratorLimits.model_validate(entry.limits).max_pixels == 100_000


def test_limits_of_the_registry():
    expected = {"qwen-image": 0, "flux1-kontext-dev": 1, "flux2-klein-9b": 4, "flux1-fill-dev": 1}
    expected |= {"qwen-image-2.1": 10, "flux2-klein-9b-kv": 4}
    known = load_registry()
    assert {name: limits_of(known.find(name)).references for name in expected} == expected


def masks():
    """The left half as open servers say it, white, and as OpenAI's clients do, transparent."""
    white, transparent = Image.new("L", SIZE), Image.new("RGBA", SIZE, "red")
    white.paste(255, LEFT)
    transparent.paste((0, 0, 0, 0), LEFT)
    for mask in (white, transparent):
        buffer = io.BytesIO()
        mask.save(buffer, "PNG")
        yield buffer.getvalue()


async def test_outside_of_a_mask_the_image_stays(klein):
    """Of a model that paints no masks itself."""
    selected, replica, server = klein
    before = EncodedImage.of(Image.new("RGB", SIZE, "orange"))
    edit = drawn(selected, params=selected.params, images=(before,)).image
    for mask in masks():
        answer = server.client().images.edit(
            image=before.data, mask=mask, prompt="a cat", extra_body={"seed": 1}
        )
        after = images_of(answer)[0].image
        assert after.crop(RIGHT).tobytes() == before.image.crop(RIGHT).tobytes()
        assert after.crop(LEFT).tobytes() == edit.crop(LEFT).tobytes()
    small = GenerationSpec("a cat", 1, selected.params, (before,), EncodedImage.white((32, 32)))
    refused = await replica.draw(small)
    assert isinstance(refused, DrawRejected) and "the mask is 32x32" in refused.reason
    with pytest.raises(openai.BadRequestError, match="a mask belongs to one image"):
        server.client().images.edit(image=[before.data] * 2, mask=before.data, prompt="a cat")


@pytest.mark.slow
def test_a_model_that_paints_masks_gets_them_white(tmp_path):
    folder = tiny.build("FluxFillPipeline", tmp_path / "fill")
    selected = select_model(DiffusersSettings(model=str(folder), steps=2, dtype="float32"))
    image, model = EncodedImage.white(SIZE), servable_pipeline(selected)
    with served(model, LocalReplica(model)) as server:
        white, transparent = (
            images_of(
                server.client().images.edit(
                    image=image.data, mask=mask, prompt="a cat", extra_body={"seed": 1}
                )
            )
            for mask in masks()
        )
    spec = GenerationSpec("a cat", 1, selected.params, (image,), EncodedImage(next(masks())))
    assert white == transparent == PipelineRunner(selected, "cpu", 1).draw([spec])
