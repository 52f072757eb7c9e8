"""What the images server answers with: formats, links, streams, limits, masks and canvases."""

import base64
import io

import httpx
import openai
import pytest
from PIL import Image

from inference.backends.diffusers import tiny
from inference.backends.diffusers.pipeline_runner import GenerationSpec, PipelineRunner
from inference.backends.diffusers.registry import DiffusersSettings, load_registry, select_model
from inference.backends.images.limits import GeneratorLimits, limits_of
from inference.http.errors import APIError
from inference.images_server import responses
from inference.images_server.models import SKETCH, DrawRejected, servable_pipeline
from inference.images_server.responses import LINKS, LinkedImages, preview_steps
from tests.inference.images_server.served_images import LocalReplica, images_of, metrics, served
from warehouse import EncodedImage

MEADOW = "Draw a meadow with a red flower at the bottom center."
SIZE = (64, 64)


@pytest.fixture(scope="module")
def sketch():
    with served(SKETCH, LocalReplica(SKETCH)) as server:
        yield server


@pytest.fixture(scope="module")
def klein(tmp_path_factory):
    """A tiny text and edit model, of ten steps."""
    folder = tiny.build("Flux2KleinPipeline", tmp_path_factory.mktemp("klein") / "klein")
    return select_model(DiffusersSettings(model=str(folder), steps=10, size="64x64"))


@pytest.fixture(scope="module")
def editor(tmp_path_factory):
    """A tiny model that only edits."""
    folder = tiny.build("QwenImageEditPipeline", tmp_path_factory.mktemp("edit") / "edit")
    return select_model(DiffusersSettings(model=str(folder), steps=1, size="64x64"))


def drawn(selected, **fields):
    [image] = PipelineRunner(selected, "cpu", 1).draw([GenerationSpec("a cat", 1, **fields)])
    return image


@pytest.mark.parametrize("form", ["png", "jpeg", "webp"])
def test_images_have_the_requested_format(sketch, form):
    answer = sketch.client().images.generate(prompt=MEADOW, output_format=form)
    [image] = images_of(answer)
    assert (image.mime, answer.output_format) == (f"image/{form}", form)


def test_compression_makes_images_smaller(sketch):
    def size(compression):
        answer = sketch.client().images.generate(
            prompt=MEADOW,
            output_format="jpeg",
            output_compression=compression,
            extra_body={"seed": 1},
        )
        return len(images_of(answer)[0].data)

    assert size(10) < size(80) < size(100)


def test_a_link_leads_to_the_image_without_a_key():
    with served(SKETCH, LocalReplica(SKETCH), key="open sesame") as server:
        images = server.client(key="open sesame").images
        seeded = {"prompt": MEADOW, "extra_body": {"seed": 1}}
        [linked] = images.generate(response_format="url", output_format="webp", **seeded).data
        [carried] = images_of(images.generate(output_format="webp", **seeded))
        reply = httpx.get(linked.url)
        assert (reply.content, reply.headers["content-type"]) == (carried.data, "image/webp")
        assert linked.b64_json is None
        assert httpx.get(linked.url.replace(linked.url[-12:-5], "x" * 7)).status_code == 404
        assert httpx.get(f"{server.url}{LINKS}../../models").status_code in (401, 404)


def test_links_expire_and_are_bounded(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(responses, "monotonic", lambda: now[0])
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
    model = servable_pipeline(klein)
    with served(model, LocalReplica(model)) as server:
        images, seed = server.client().images, {"seed": 1}
        events = list(
            images.generate(prompt="a cat", stream=True, partial_images=2, extra_body=seed)
        )
        [expected] = images_of(images.generate(prompt="a cat", extra_body=seed))
        edited = list(
            images.edit(
                image=expected.data,
                prompt="a dog",
                stream=True,
                partial_images=1,
                output_format="jpeg",
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


def test_a_stream_without_steps_has_the_image_alone(sketch):
    [event] = sketch.client().images.generate(prompt=MEADOW, stream=True, partial_images=3)
    assert event.type == "image_generation.completed"


class BrokenReplica(LocalReplica):
    async def draw(self, spec):
        raise RuntimeError("a bug")


def test_streams_are_counted_by_how_they_end():
    with served(SKETCH, LocalReplica(SKETCH)) as server:
        images = server.client().images
        list(images.generate(prompt=MEADOW, stream=True))
        with pytest.raises(openai.APIError):
            list(images.generate(prompt=MEADOW, size="100x100", stream=True))
        counted = metrics(server)
    requests = 'interleave_images_requests_total{{endpoint="generations",status="{}"}}'
    assert counted[requests.format(200)] == counted[requests.format(400)] == 1


def test_a_bug_ends_a_stream_without_details():
    with served(SKETCH, BrokenReplica(SKETCH)) as server, pytest.raises(openai.APIError) as caught:
        list(server.client().images.generate(prompt=MEADOW, stream=True))
    assert "a bug" not in str(caught.value)


def test_errors_of_a_stream_reach_the_client(sketch):
    with pytest.raises(openai.APIError, match="multiple of 96"):
        list(sketch.client().images.generate(prompt=MEADOW, size="100x100", stream=True))
    with pytest.raises(openai.BadRequestError, match="at most 500 steps"):
        sketch.client().images.generate(
            prompt=MEADOW, stream=True, extra_body={"num_inference_steps": 501}
        )


@pytest.mark.parametrize(
    ("steps", "count", "expected"),
    [(28, 3, [4, 9, 14]), (4, 3, [1, 2]), (4, 1, [2]), (1, 3, []), (None, 2, []), (50, 0, [])],
)
def test_partial_images_take_at_most_half_of_the_steps_each(steps, count, expected):
    assert preview_steps(steps, count) == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stream": True, "response_format": "url"}, "a stream carries its images"),
        ({"output_compression": 10}, "output_format to jpeg or webp"),
        ({"output_compression": 10, "output_format": "png"}, "output_format to jpeg or webp"),
    ],
)
def test_fields_that_would_be_ignored_are_errors(sketch, fields, message):
    with pytest.raises(openai.BadRequestError, match=message):
        sketch.client().images.generate(prompt=MEADOW, **fields)


def test_a_mask_comes_with_one_image(sketch):
    white = EncodedImage.white((192, 192)).data
    with pytest.raises(openai.BadRequestError, match="a mask belongs to one image"):
        sketch.client().images.edit(image=[white, white], mask=white, prompt=MEADOW)


def test_models_say_what_they_take(sketch, editor):
    limits = GeneratorLimits.model_validate(sketch.client().models.retrieve("sketch").limits)
    assert (limits.references, limits.negative_prompt, limits.square) == (1, False, True)
    assert limits.problem_with_size("192x192") is None
    assert "no multiples of 96" in limits.problem_with_size("100x100")
    assert "no square" in limits.problem_with_size("192x96")
    model = servable_pipeline(editor)
    with served(model, LocalReplica(model), allowed={"pixels": 100_000}) as server:
        [entry] = server.client().models.list()
        limits = GeneratorLimits.model_validate(entry.limits)
    assert (limits.references, limits.negative_prompt, limits.max_pixels) == (1, True, 100_000)


@pytest.mark.parametrize(
    ("name", "references"),
    [("qwen-image", 0), ("flux1-kontext-dev", 1), ("flux2-klein-9b", 4), ("flux1-fill-dev", 1)],
)
def test_limits_of_the_registry(name, references):
    assert limits_of(load_registry().find(name)).references == references


def test_a_model_that_only_edits_draws_first_images_on_white(editor):
    model = servable_pipeline(editor)
    with served(model, LocalReplica(model)) as server:
        answer = server.client().images.generate(prompt="a cat", extra_body={"seed": 1})
    canvas = EncodedImage.white(SIZE)
    assert images_of(answer) == [drawn(editor, params=editor.params, images=(canvas,))]


async def test_outside_of_a_mask_the_image_stays(klein):
    before = EncodedImage.of(Image.new("RGB", SIZE, "orange"))
    mask = Image.new("L", SIZE)
    mask.paste(255, (0, 0, 32, 64))
    spec = GenerationSpec("a cat", 1, klein.params, (before,), EncodedImage.of(mask))
    replica = LocalReplica(servable_pipeline(klein)).replica
    after = EncodedImage((await replica.draw(spec)).data).image
    edit = drawn(klein, params=klein.params, images=(before,)).image
    left, right = (0, 0, 32, 64), (32, 0, 64, 64)
    assert after.crop(right).tobytes() == before.image.crop(right).tobytes()
    assert after.crop(left).tobytes() == edit.crop(left).tobytes()
    small = GenerationSpec("a cat", 1, klein.params, (before,), EncodedImage.white((32, 32)))
    assert "the mask is 32x32" in (await replica.draw(small)).reason
    assert isinstance(await replica.draw(small), DrawRejected)


def test_a_transparent_mask_is_where_to_repaint(klein):
    before = Image.new("RGB", SIZE, "orange")
    mask = Image.new("RGBA", SIZE, "black")
    mask.paste((0, 0, 0, 0), (0, 0, 32, 64))
    sent = []
    for image in (before, mask):
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        sent.append(buffer.getvalue())
    model = servable_pipeline(klein)
    with served(model, LocalReplica(model)) as server:
        answer = server.client().images.edit(image=sent[0], mask=sent[1], prompt="a cat")
    [after] = images_of(answer)
    assert after.image.crop((32, 0, 64, 64)).getextrema() == ((255, 255), (165, 165), (0, 0))
    assert after.image.crop((0, 0, 32, 64)).getextrema() != ((255, 255), (165, 165), (0, 0))
