"""The images API without Ray: responses, and errors in OpenAI's shape."""

import asyncio
import base64
import io
import json
import socket
import threading

import httpx
import openai
import pytest
from PIL import Image

from inference.backends.images.limits import GeneratorLimits
from inference.images_server.models import SKETCH
from inference.images_server.openai_images import LINKS
from inference.images_server.ray_replicas import Readiness, ReplicaLostError
from inference.sketch_world import generator as sketch_generator
from inference.sketch_world.settings import SketchSettings
from tests.inference.images_server.served_images import LocalReplica, images_of, served, until
from tests.inference.service.running_service import error_of
from warehouse import EncodedImage

MEADOW = "Draw a meadow with a red flower at the bottom center."
BIRD = "Add a blue bird at the top left. Keep everything else unchanged."
DRAW, EDIT = "/v1/images/generations", "/v1/images/edits"


@pytest.fixture(scope="module")
def server():
    with served(SKETCH, LocalReplica(SKETCH), allowed={"bytes": 200_000, "pixels": 500_000}) as it:
        yield it


def draw(server):
    return server.post(DRAW, json={"prompt": MEADOW})


class BlockedReplica(LocalReplica):
    """Draws once `resume` is set, and counts calls and cancellations."""

    def __init__(self):
        super().__init__(SKETCH)
        self.resume, self.started, self.cancelled = threading.Event(), 0, 0

    async def draw(self, spec):
        self.started += 1
        try:
            await asyncio.to_thread(self.resume.wait, 60)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await super().draw(spec)


class FailingReplica(LocalReplica):
    def __init__(self, error, readiness=None):
        super().__init__(SKETCH)
        self._error, self._readiness = error, readiness or Readiness(1, 1)

    async def draw(self, spec):
        raise self._error

    def readiness(self):
        return self._readiness


def sketch(prompt=MEADOW, images=(), seed=1, side=192):
    settings = SketchSettings(picture_size=side)
    return sketch_generator.draw(prompt, images, seed, settings)


def png(size=(96, 96), mode="RGB"):
    buffer = io.BytesIO()
    Image.new(mode, size, "white").save(buffer, "PNG")
    return buffer.getvalue()


def test_seed_and_size_determine_the_images(server):
    images = server.client().images
    one = images.generate(prompt=MEADOW, size="96x96", n=2, extra_body={"seed": 7})
    assert images_of(one) == [sketch(seed=7, side=96), sketch(seed=8, side=96)]
    assert [image.seed for image in one.data] == [7, 8]
    again = images.generate(model="sketch", prompt=MEADOW, size="auto", extra_body={"seed": 7})
    assert images_of(again) == [sketch(seed=7)]


def test_random_seed_is_returned_and_reproduces_the_image(server):
    images = server.client().images
    one, other = (images.generate(prompt=MEADOW).data[0] for _ in range(2))
    assert one.seed != other.seed
    repeated = images.generate(prompt=MEADOW, extra_body={"seed": one.seed})
    assert repeated.data[0].b64_json == one.b64_json


def test_edit_uses_the_last_image(server):
    first, images = sketch(), server.client().images
    single = images.edit(image=first.data, prompt=BIRD, extra_body={"seed": 3})
    assert images_of(single) == [sketch(BIRD, (first,), 3)]
    blank = EncodedImage.white((96, 96))
    with_reference = images.edit(
        image=[blank.data, first.data], prompt=BIRD, extra_body={"seed": 3}
    )
    assert images_of(with_reference) == [sketch(BIRD, (blank, first), 3)]


INVALID_FIELDS = [
    ({"size": "0x10"}, "should match pattern", "size"),
    ({"size": "960x960"}, "more than 500000 pixels", "size"),
    ({"size": "100x100"}, "multiple of 96", None),
    ({"n": 0}, "greater than or equal to 1", "n"),
    ({"n": 17}, "less than or equal to 16", "n"),
    ({"seed": -1}, "greater than or equal to 0", "seed"),
    ({"num_inference_steps": 0}, "greater than or equal to 1", "num_inference_steps"),
    ({"num_inference_steps": 501}, "at most 500 steps", "num_inference_steps"),
    ({"num_inference_step": 5}, "unknown field num_inference_step", "num_inference_step"),
    ({"guidance_scale": "much"}, "valid number", "guidance_scale"),
    ({"response_format": "file"}, "should be 'b64_json' or 'url'", "response_format"),
    ({"output_format": "gif"}, "should be 'png', 'jpeg' or 'webp'", "output_format"),
    ({"output_compression": 101}, "less than or equal to 100", "output_compression"),
    ({"background": "transparent"}, "should be 'auto' or 'opaque'", "background"),
    ({"quality": "high"}, "should be 'auto' or 'standard'", "quality"),
    ({"input_fidelity": "high"}, "should be 'low'", "input_fidelity"),
    ({"partial_images": 2}, "send stream: true", None),
    ({"stream": True, "n": 2}, "a stream has one image", None),
    ({"prompt": ""}, "at least 1 character", "prompt"),
    ({"prompt": None}, "valid string", "prompt"),
    ({"negative_prompt": "rain"}, "takes no negative prompt", None),
]


def test_invalid_fields_are_rejected(server):
    for field, message, param in INVALID_FIELDS:
        error = error_of(server.post(DRAW, json={"prompt": MEADOW} | field), 400)
        assert message in error["message"] and error["param"] == param, field
        assert error["type"] == "invalid_request_error"
        form = {name: str(value) for name, value in ({"prompt": MEADOW} | field).items() if value}
        if len(form) > 1:
            answer = server.post(EDIT, data=form, files={"image": png()})
            assert message in error_of(answer, 400)["message"], field


def test_malformed_bodies_are_rejected(server):
    json, multipart = "application/json", "multipart/form-data; boundary=x"
    for body in (b"", b"{", b"[1]", b'"x"', b"\xff\xfe"):
        error_of(server.post(DRAW, content=body, headers={"Content-Type": json}), 400)
        error_of(server.post(EDIT, content=body, headers={"Content-Type": multipart}), 400)
    assert "send JSON" in error_of(server.post(DRAW, data={"prompt": "a"}), 400)["message"]
    assert "as files" in error_of(server.post(EDIT, json={"prompt": "a"}), 400)["message"]
    text = server.post(EDIT, data={"prompt": "a", "image": "b"}, files={"mask": png()})
    assert error_of(text, 400)["param"] == "image"


UNUSABLE_IMAGES = [
    ({"image": b"no image"}, "invalid_image"),
    ({"image": png()[:-40]}, "cannot_be_drawn"),
    ({"image[]": png((1000, 1000))}, "image_too_large"),
    ({"image": png(), "mask": b"GIF89a"}, "invalid_image"),
    ({"image": png(), "mask": png(mode="RGBA")[:-30]}, "invalid_image"),
    ({"image": png(), "mask": png((64, 64))}, "cannot_be_drawn"),
    ({"image": png(), "other": png()}, None),
]


def test_unusable_images_are_rejected(server):
    for files, code in UNUSABLE_IMAGES:
        response = server.post(EDIT, data={"prompt": BIRD}, files=files)
        assert error_of(response, 400)["code"] == code, files.keys()


def test_oversized_body_is_a_413_that_the_client_receives(server):
    with pytest.raises(openai.APIStatusError) as caught:
        server.client().images.edit(image=[b"x" * 2_000_000], prompt=BIRD)
    assert caught.value.status_code == 413
    assert "larger than 200000 bytes" in caught.value.message
    long = {"prompt": MEADOW, "negative_prompt": "x" * 300_000}
    assert error_of(server.post(DRAW, json=long), 413)["code"] == "request_too_large"


def test_models_say_what_they_take(server):
    client = server.client()
    assert [model.id for model in client.models.list()] == ["sketch"]
    limits = GeneratorLimits.model_validate(client.models.retrieve("sketch").limits)
    assert (limits.references, limits.negative_prompt, limits.square) == (1, False, True)
    assert limits.problem_with_size("192x192") is None
    assert "no multiples of 96" in limits.problem_with_size("100x100")
    assert "no square" in limits.problem_with_size("192x96")
    with pytest.raises(openai.NotFoundError, match="no model dall-e here, only sketch"):
        client.images.generate(model="dall-e", prompt=MEADOW)
    assert "Not Found" in error_of(server.get("/v1/nothing"), 404)["message"]
    assert "Not Allowed" in error_of(server.get(DRAW), 405)["message"]


def test_only_health_and_links_need_no_key():
    with served(SKETCH, LocalReplica(SKETCH), key="open sesame") as server:
        for header in ("Bearer", "Bearer open", "Bearer open sesamé", "open sesame"):
            headers = {"Authorization": header.encode()}
            rejected = server.post(DRAW, json={"prompt": MEADOW}, headers=headers)
            assert error_of(rejected, 401)["code"] == "invalid_api_key"
        assert server.get("/health").status_code == 200
        assert server.get("/metrics").status_code == 401
        assert "sesame" not in server.get("/v1/models").text
        images = server.client(key="open sesame").images
        seeded = {"prompt": MEADOW, "extra_body": {"seed": 1}}
        [linked] = images.generate(response_format="url", output_format="webp", **seeded).data
        [carried] = images_of(images.generate(output_format="webp", **seeded))
        reply = httpx.get(linked.url)
        assert (reply.content, reply.headers["content-type"]) == (carried.data, "image/webp")
        assert linked.b64_json is None
        assert httpx.get(linked.url.replace(linked.url[-12:-5], "x" * 7)).status_code == 404
        assert server.get(f"{LINKS}../../models").status_code in (401, 404)


def reward_request(prompt, image=None):
    """As the reference's reward client sends it, with its misspelt and its unknown parameters."""
    return {
        "image": None if image is None else base64.b64encode(image.data).decode(),
        "prompt": prompt,
        "num_inference_step": 4,
        "text_guidance_scale": 5.0,
        "image_guidance_scale": 1.5,
        "guidance_scale": 1.0,
        "width": 1024,
        "height": 1024,
        "enhance_prompt": False,
        "seed": 0,
    }


def test_the_references_reward_client_gets_its_images(server):
    first = sketch(seed=0)
    for prompt, image, expected in (
        (MEADOW, None, first),
        (BIRD, first, sketch(BIRD, (first,), 0)),
    ):
        request = reward_request(prompt, image)
        answer = server.post("/edit", json=request).json()
        assert answer.pop("processing_time") > 0 and answer.pop("task_id").startswith("edit_task_")
        assert EncodedImage(base64.b64decode(answer.pop("edited_image"))) == expected
        assert answer == {
            "success": True,
            "original_image": request["image"],
            "seed": 0,
            "original_prompt": prompt,
            "enhanced_prompt": None,
            "gpu_id": 0,
            "error": None,
        }
    minimal = server.post("/edit", json={"prompt": MEADOW}).json()
    assert minimal["success"] and minimal["enhanced_prompt"] == MEADOW
    assert EncodedImage(base64.b64decode(minimal["edited_image"])) == sketch(seed=minimal["seed"])


def test_the_references_nginx_forwards_in_http_1_0(server):
    """With the headers of its set-up, `Host` without a port among them."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    body = json.dumps(reward_request(MEADOW)).encode()
    head = (
        "POST /edit HTTP/1.0\r\nHost: localhost\r\nX-Real-IP: 10.0.0.7\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, content = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0] and json.loads(content)["success"]


def test_the_references_errors_have_a_detail(server):
    for change, problem in (
        ({"prompt": None}, "prompt"),
        ({"guidance_scale": 8}, "less than or equal to 7.5"),
        ({"num_inference_steps": 101}, "less than or equal to 100"),
        ({"image": "no base64"}, "image is not"),
        ({"image": base64.b64encode(b"no image").decode()}, "image is not a PNG"),
        ({"prompt": "x" * 40_000}, "32000"),
    ):
        refused = server.post("/edit", json=reward_request(MEADOW) | change)
        assert refused.status_code == 422
        assert list(refused.json()) == ["detail"] and problem in refused.json()["detail"]


def test_the_references_health_and_status():
    replica = BlockedReplica()
    with served(SKETCH, replica, batch=1, queue=3, key="sesame") as server:
        until(lambda: server.get("/health").json()["gpu_manager_ready"])
        health = server.get("/health").json()
        assert health.pop("timestamp") > 1e9
        assert health == {"status": "Healthy", "gpu_manager_ready": True}
        assert server.get("/status").status_code == 401
        address = server.url.replace("http://", "http://any:sesame@")  # as their client is told it
        threads = [
            threading.Thread(target=httpx.post, args=(f"{address}/edit",), kwargs={"json": each})
            for each in (reward_request(MEADOW), reward_request(BIRD))
        ]
        for thread in threads:
            thread.start()
        until(lambda: replica.started == 2)
        assert httpx.get(f"{address}/status").json() == {
            "active_workers": 1,
            "task_queue_size": 1,
            "result_queue_size": 0,
            "pending_tasks": 2,
            "total_gpus": 1,
            "system_ready": True,
        }
        replica.resume.set()
        for thread in threads:
            thread.join()


def test_internal_errors_have_no_details():
    for error, status, message in (
        (ReplicaLostError("it is gone"), 503, "it is gone"),
        (KeyError("secret"), 500, "internal server error"),
    ):
        with served(SKETCH, FailingReplica(error)) as server:
            until(lambda server=server: server.get("/ready").status_code == 200)
            ours = error_of(draw(server), status)
            theirs = server.post("/edit", json=reward_request(MEADOW))
            with pytest.raises(openai.APIError, match=message) as streamed:
                list(server.client().images.generate(prompt=MEADOW, stream=True))
            requests = 'interleave_images_requests_total{endpoint="generations",status="%d"}'
            assert server.metrics()[requests % status] == 2
        assert message in ours["message"] and ours["type"] == "server_error"
        assert theirs.status_code == status and list(theirs.json()) == ["detail"]
        for shown in (ours["message"], theirs.text, str(streamed.value)):
            assert "secret" not in shown


def test_full_queue_sends_retry_after():
    replica = BlockedReplica()
    with served(SKETCH, replica, batch=1, queue=1) as server:
        waiting = [threading.Thread(target=draw, args=(server,)) for _ in range(2)]
        for thread in waiting:
            thread.start()
        until(lambda: replica.started == 2)
        full = server.post(DRAW, json={"prompt": MEADOW})
        assert error_of(full, 429)["code"] == "queue_full"
        assert 1 <= int(full.headers["Retry-After"]) <= 60
        too_many = server.post(DRAW, json={"prompt": MEADOW, "n": 3})
        assert "no more than 2 images" in error_of(too_many, 400)["message"]
        metrics = server.metrics()
        names = ("queue", "waiting", "requests_in_flight")
        assert [metrics[f"interleave_images_{name}"] for name in names] == [2, 1, 2]
        replica.resume.set()
        for thread in waiting:
            thread.join()
        assert draw(server).status_code == 200


def test_disconnect_cancels_and_frees_the_queue():
    replica = BlockedReplica()
    with served(SKETCH, replica, batch=1, queue=0) as server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                server.url + DRAW, json={"prompt": MEADOW}, timeout=httpx.Timeout(60, read=1)
            )
        until(lambda: replica.cancelled == replica.started == 1)
        replica.resume.set()
        assert draw(server).status_code == 200
        until(lambda: 'endpoint="generations",status="499"' in server.get("/metrics").text)


def test_timeout_is_a_504():
    replica = BlockedReplica()
    with served(SKETCH, replica, allowed={"seconds": 0.2}) as server:
        assert error_of(draw(server), 504)["code"] == "timeout"
        replica.resume.set()


def test_not_ready_without_replicas():
    dead = FailingReplica(ReplicaLostError("gone"), Readiness(0, 2, "the weights are not there"))
    with served(SKETCH, dead) as server:
        until(lambda: "weights" in server.get("/ready").text)
        ready = server.get("/ready")
        reason = "0 of 2 replicas are running: the weights are not there"
        assert error_of(ready, 503)["message"] == reason
        assert server.get("/health").status_code == 200
        assert error_of(draw(server), 503) == ready.json()["error"]
        assert draw(server).headers["Retry-After"]


def test_metrics_count_requests_images_and_batches(server):
    before = server.metrics()
    server.client().images.generate(prompt=MEADOW, n=3)
    server.post(DRAW, json={"prompt": ""})
    after = server.metrics()
    change = {name: after[name] - before.get(name, 0) for name in after}
    counted = 'interleave_images_requests_total{endpoint="generations",status="%s"}'
    assert change[counted % 200] == change[counted % 400] == 1
    by_replica = [name for name in change if name.startswith("interleave_images_pictures_total")]
    assert [change[name] for name in by_replica] == [3]
    assert change["interleave_images_batch_size_count"] == 3
    assert change["interleave_images_batch_size_sum"] == 9  # one batch of three
    assert change["interleave_images_model_seconds_count"] == 3
    assert change["interleave_images_outside_seconds_count"] == 1
    assert change['interleave_images_request_seconds_count{endpoint="generations"}'] == 2
    assert after["interleave_images_requests_in_flight"] == after["interleave_images_waiting"] == 0
    assert after["interleave_images_queue"] == 0
    assert after["interleave_images_replicas_running"] == 1
