"""The images API without Ray: what is read, what is refused, and how."""

import asyncio
import io
import threading

import httpx
import openai
import pytest
from PIL import Image

from inference.images_server.models import Sketch
from inference.images_server.ray_replicas import Readiness, ReplicaLost
from inference.sketch_world.generator import SketchGenerator
from inference.sketch_world.settings import SketchSettings
from tests.inference.images_server.served_images import Here, metrics, pictures, served, until
from warehouse import EncodedImage

MEADOW = "Draw a meadow with a red flower at the bottom center."
BIRD = "Add a blue bird at the top left. Keep everything else unchanged."
DRAW, EDIT = "/v1/images/generations", "/v1/images/edits"


@pytest.fixture(scope="module")
def server():
    with served(Sketch(), Here(Sketch()), allowed={"bytes": 200_000, "pixels": 500_000}) as it:
        yield it


class Slow(Here):
    """Draws when told to, and remembers who went away."""

    def __init__(self):
        super().__init__(Sketch())
        self.go_on, self.begun, self.cancelled = threading.Event(), 0, 0

    async def draw(self, drawing):
        self.begun += 1
        try:
            await asyncio.to_thread(self.go_on.wait, 60)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await super().draw(drawing)


class Failing(Here):
    def __init__(self, error, seen=None):
        super().__init__(Sketch())
        self._error, self._seen = error, seen or Readiness(1, 1)

    async def draw(self, drawing):
        raise self._error

    def readiness(self):
        return self._seen


def sketched(prompt=MEADOW, images=(), seed=1, side=192):
    settings = SketchSettings(picture_size=side)
    return EncodedImage.of(SketchGenerator(settings).draw(prompt, images, seed).image)


def png(size=(96, 96), mode="RGB"):
    buffer = io.BytesIO()
    Image.new(mode, size, "white").save(buffer, "PNG")
    return buffer.getvalue()


def error_of(response, status):
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in response.text
    return error


def test_pictures_are_drawn_by_seed_and_size(server):
    images = server.client().images
    one = images.generate(prompt=MEADOW, size="96x96", n=2, extra_body={"seed": 7})
    assert pictures(one) == [sketched(seed=7, side=96), sketched(seed=8, side=96)]
    assert [image.seed for image in one.data] == [7, 8]
    again = images.generate(model="sketch", prompt=MEADOW, size="auto", extra_body={"seed": 7})
    assert pictures(again) == [sketched(seed=7)]


def test_without_a_seed_every_request_is_another_which_can_be_repeated(server):
    images = server.client().images
    one, other = (images.generate(prompt=MEADOW).data[0] for _ in range(2))
    assert one.seed != other.seed
    repeated = images.generate(prompt=MEADOW, extra_body={"seed": one.seed})
    assert repeated.data[0].b64_json == one.b64_json


def test_pictures_are_edited(server):
    first, images = sketched(), server.client().images
    alone = images.edit(image=first.data, prompt=BIRD, extra_body={"seed": 3})
    assert pictures(alone) == [sketched(BIRD, (first,), 3)]
    blank = EncodedImage.white((96, 96))
    after_another = images.edit(image=[blank.data, first.data], prompt=BIRD, extra_body={"seed": 3})
    assert pictures(after_another) == [sketched(BIRD, (blank, first), 3)]


@pytest.mark.parametrize(
    ("field", "said", "param"),
    [
        ({"size": "0x10"}, "should match pattern", "size"),
        ({"size": "960x960"}, "more than 500000 pixels", "size"),
        ({"size": "100x100"}, "multiple of 96", None),
        ({"n": 0}, "greater than or equal to 1", "n"),
        ({"n": 17}, "less than or equal to 16", "n"),
        ({"seed": -1}, "greater than or equal to 0", "seed"),
        ({"num_inference_steps": 0}, "greater than or equal to 1", "num_inference_steps"),
        ({"num_inference_steps": 501}, "at most 500 steps", "num_inference_steps"),
        ({"num_inference_step": 5}, "no field is called num_inference_step", "num_inference_step"),
        ({"guidance_scale": "much"}, "valid number", "guidance_scale"),
        ({"response_format": "url"}, "should be 'b64_json'", "response_format"),
        ({"output_format": "jpeg"}, "should be 'png'", "output_format"),
        ({"stream": True}, "not streamed", "stream"),
        ({"prompt": ""}, "at least 1 character", "prompt"),
        ({"prompt": None}, "valid string", "prompt"),
        ({"negative_prompt": "rain"}, "takes no negative prompt", None),
    ],
)
def test_what_cannot_be_drawn_is_refused(server, field, said, param):
    error = error_of(server.post(DRAW, json={"prompt": MEADOW} | field), 400)
    assert said in error["message"] and error["param"] == param
    assert error["type"] == "invalid_request_error"
    form = {name: str(value) for name, value in ({"prompt": MEADOW} | field).items() if value}
    if len(form) > 1:
        files = {"image": png()}
        assert said in error_of(server.post(EDIT, data=form, files=files), 400)["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"x"', b"\xff\xfe"])
def test_what_is_no_request_is_refused(server, body):
    error_of(server.post(DRAW, content=body, headers={"Content-Type": "application/json"}), 400)
    multipart = {"Content-Type": "multipart/form-data; boundary=x"}
    error_of(server.post(EDIT, content=body, headers=multipart), 400)


def test_the_form_of_the_other_endpoint_is_refused(server):
    assert "send JSON" in error_of(server.post(DRAW, data={"prompt": "a"}), 400)["message"]
    assert "as files" in error_of(server.post(EDIT, json={"prompt": "a"}), 400)["message"]
    text = server.post(EDIT, data={"prompt": "a", "image": "b"}, files={"mask": png()})
    assert error_of(text, 400)["param"] == "image"


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"image": b"no picture"}, "invalid_image"),
        ({"image": png()[:-40]}, "cannot_be_drawn"),
        ({"image[]": png((1000, 1000))}, "image_too_large"),
        ({"image": png(), "mask": b"GIF89a"}, "invalid_image"),
        ({"image": png(), "mask": png(mode="RGBA")[:-30]}, "invalid_image"),
        ({"image": png(), "mask": png()}, "cannot_be_drawn"),
        ({"image": png(), "other": png()}, None),
    ],
)
def test_pictures_that_cannot_be_used_are_refused(server, files, code):
    response = server.post(EDIT, data={"prompt": BIRD}, files=files)
    assert error_of(response, 400)["code"] == code


def test_a_body_too_large_is_refused_and_the_client_hears_of_it(server):
    with pytest.raises(openai.APIStatusError) as caught:
        server.client().images.edit(image=[b"x" * 2_000_000], prompt=BIRD)
    assert caught.value.status_code == 413
    assert "larger than 200000 bytes" in caught.value.message
    long = {"prompt": MEADOW, "negative_prompt": "x" * 300_000}
    assert error_of(server.post(DRAW, json=long), 413)["code"] == "request_too_large"


def test_models_and_what_is_not_there(server):
    client = server.client()
    assert [model.id for model in client.models.list()] == ["sketch"]
    assert client.models.retrieve("sketch").id == "sketch"
    with pytest.raises(openai.NotFoundError, match="no model dall-e here, only sketch"):
        client.images.generate(model="dall-e", prompt=MEADOW)
    assert "Not Found" in error_of(server.get("/v1/nothing"), 404)["message"]
    assert "Not Allowed" in error_of(server.get(DRAW), 405)["message"]


def test_who_has_no_key_may_only_ask_how_it_is():
    with served(Sketch(), Here(Sketch()), key="open sesame") as server:
        assert server.client(key="open sesame").images.generate(prompt=MEADOW).data
        for given in ("Bearer", "Bearer open", "Bearer open sesamé", "open sesame"):
            headers = {"Authorization": given.encode()}
            refused = server.post(DRAW, json={"prompt": MEADOW}, headers=headers)
            assert error_of(refused, 401)["code"] == "invalid_api_key"
        assert server.get("/health").status_code == 200
        assert server.get("/metrics").status_code == 401
        assert "sesame" not in server.get("/v1/models").text


def test_a_full_queue_says_when_to_come_back():
    studio = Slow()
    with served(Sketch(), studio, batch=1, queue=1) as server:
        waiting = [threading.Thread(target=drawn_by, args=(server,)) for _ in range(2)]
        for thread in waiting:
            thread.start()
        until(lambda: studio.begun == 2)
        full = server.post(DRAW, json={"prompt": MEADOW})
        assert error_of(full, 429)["code"] == "queue_full"
        assert 1 <= int(full.headers["Retry-After"]) <= 60
        never = server.post(DRAW, json={"prompt": MEADOW, "n": 3})
        assert "no more than 2 pictures" in error_of(never, 400)["message"]
        assert "interleave_images_queue 2.0" in server.get("/metrics").text
        studio.go_on.set()
        for thread in waiting:
            thread.join()
        assert drawn_by(server).status_code == 200


def drawn_by(server):
    return server.post(DRAW, json={"prompt": MEADOW})


def test_a_client_that_goes_away_frees_its_place():
    studio = Slow()
    with served(Sketch(), studio, batch=1, queue=0) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                server.url + DRAW, json={"prompt": MEADOW}, timeout=httpx.Timeout(60, read=1)
            )
        until(lambda: studio.cancelled == studio.begun == 1)
        studio.go_on.set()
        assert drawn_by(server).status_code == 200
        until(lambda: 'endpoint="generations",status="499"' in server.get("/metrics").text)


def test_what_is_not_drawn_in_time_is_given_up():
    studio = Slow()
    with served(Sketch(), studio, allowed={"seconds": 0.2}) as server:
        assert error_of(drawn_by(server), 504)["code"] == "timeout"
        studio.go_on.set()


def test_no_replica_means_not_ready_and_why():
    gone = Failing(ReplicaLost("gone"), Readiness(0, 2, "the weights are not there"))
    with served(Sketch(), gone) as server:
        until(lambda: "weights" in server.get("/ready").text)
        ready = server.get("/ready")
        reason = "0 of 2 replicas can draw: the weights are not there"
        assert error_of(ready, 503)["message"] == reason
        assert server.get("/health").status_code == 200
        assert error_of(drawn_by(server), 503) == ready.json()["error"]
        assert drawn_by(server).headers["Retry-After"]


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(ReplicaLost("it is gone"), 503, "it is gone"), (KeyError("secret"), 500, "went wrong here")],
)
def test_faults_of_ours_are_told_without_a_traceback(error, status, said):
    with served(Sketch(), Failing(error)) as server:
        told = error_of(drawn_by(server), status)
        assert said in told["message"] and "secret" not in told["message"]
        assert told["type"] == "server_error"


def test_prometheus_hears_of_everything(server):
    before = metrics(server)
    server.client().images.generate(prompt=MEADOW, n=3)
    server.post(DRAW, json={"prompt": ""})
    after = metrics(server)
    change = {name: after[name] - before.get(name, 0) for name in after}
    counted = 'interleave_images_requests_total{endpoint="generations",status="%s"}'
    assert change[counted % 200] == change[counted % 400] == 1
    drawn = [name for name in change if name.startswith("interleave_images_pictures_total")]
    assert [change[name] for name in drawn] == [3]
    assert change["interleave_images_batch_size_count"] == 3
    assert change["interleave_images_batch_size_sum"] == 9  # three drawn as one
    assert change["interleave_images_model_seconds_count"] == 3
    assert change["interleave_images_outside_seconds_count"] == 1
    assert after["interleave_images_queue"] == 0
    assert after["interleave_images_replicas_running"] == 1
