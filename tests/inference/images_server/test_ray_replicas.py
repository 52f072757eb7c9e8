"""Replicas on a real Ray cluster of two nodes, asked by the official client."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import openai
import psutil
import pytest

from inference.backends.diffusers import tiny
from inference.backends.diffusers.backend import DiffusersSettings, select_model
from inference.images_server.models import ImagesServerSettings, servable_pipeline
from inference.images_server.ray_replicas import deploy
from tests.helpers.ray_nodes import ray_nodes
from tests.inference.images_server.served_images import images_of, served, until
from warehouse import EncodedImage

pytestmark = pytest.mark.long

ROOT = __file__.partition("/tests/")[0]
DRAW = "/v1/images/generations"
ROUNDING = 2  # between an image alone and in a batch; see test_contract.py
ENDLESS = 10**6  # steps that take hours
CAPACITY = 8  # 2 replicas x batch 4, and no queue
IMAGES_TOTAL = "interleave_images_pictures_total"


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a CPU for one replica each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", ROOT)  # of the replicas
        with ray_nodes(1, head_cpus=1, jobs=False) as nodes:
            yield nodes


@pytest.fixture(scope="module")
def klein(tmp_path_factory):
    return tiny.build("Flux2KleinPipeline", tmp_path_factory.mktemp("pipelines") / "klein")


def model_of(folder):
    chosen = DiffusersSettings(model=str(folder), steps=2, size="64x64", dtype="float32")
    return servable_pipeline(select_model(chosen))


def settings_of(cluster, **more):
    return ImagesServerSettings(
        ray=cluster.gcs_address, replicas=2, queue=0, allowed={"steps": ENDLESS}, **more
    )


@pytest.fixture(scope="module")
def server(cluster, klein):
    model, settings = model_of(klein), settings_of(cluster)
    with (
        deploy(model, settings, "images-test") as replicas,
        served(model, replicas, settings) as it,
    ):
        wait_until_ready(it)
        yield it


def wait_until_ready(server):
    wait_for(server, lambda ready: ready.json().get("replicas") == 2)


def wait_for(server, condition):
    """Wait for an answer to `/ready`; a failure shows the last one, and which nodes live."""
    import ray

    def seen():
        return server.get("/ready").text, [node["Alive"] for node in ray.nodes()]

    until(lambda: condition(server.get("/ready")), seen=seen)


def pixels(image):
    return np.asarray(image.image, int)


def generate(server, **fields):
    more = {name: fields.pop(name) for name in list(fields) if name not in ("n", "size")}
    return images_of(server.client().images.generate(prompt="a red cat", extra_body=more, **fields))


def test_model_that_cannot_be_loaded_is_not_ready_with_a_reason(cluster, tmp_path):
    (tmp_path / "model_index.json").write_text(
        '{"_class_name": "FluxPipeline", "vae": ["diffusers", "AutoencoderKL"]}'
    )
    model, settings = model_of(tmp_path), settings_of(cluster)
    with deploy(model, settings, "broken") as replicas, served(model, replicas, settings) as server:
        assert server.get("/health").status_code == 200
        wait_for(server, lambda ready: "cannot be loaded" in ready.text)
        ready = server.get("/ready")
        message = ready.json()["error"]["message"]
        assert ready.status_code == 503
        assert message.startswith("0 of 2 replicas are running: generator ") and "\n" not in message
        with pytest.raises(openai.InternalServerError, match="cannot be loaded on cpu"):
            server.client().images.generate(prompt="a red cat")


def test_seed_size_and_steps_change_the_image(server):
    assert [model.id for model in server.client().models.list()] == ["klein"]
    (first,) = generate(server, seed=5)
    assert generate(server, seed=5) == [first]
    assert generate(server, seed=6) != [first]
    assert generate(server, seed=5, num_inference_steps=3) != [first]
    (wide,) = generate(server, seed=5, size="96x64")
    assert (first.image.size, wide.image.size) == ((64, 64), (96, 64))
    together = generate(server, seed=5, n=2)
    assert np.abs(pixels(together[0]) - pixels(first)).max() <= ROUNDING
    assert np.abs(pixels(together[1]) - pixels(first)).max() > ROUNDING


def test_a_stream_has_partial_images_from_the_replicas(server):
    more = {"seed": 5, "num_inference_steps": 4}
    stream = server.client().images.generate(
        prompt="a red cat", stream=True, partial_images=1, extra_body=more
    )
    partial, completed = list(stream)
    assert partial.type == "image_generation.partial_image"
    assert EncodedImage(base64.b64decode(completed.b64_json)) == generate(server, **more)[0]


def test_load_reaches_both_nodes_in_batches(server):
    before = server.metrics()
    with ThreadPoolExecutor(CAPACITY) as clients:
        answers = clients.map(lambda seed: generate(server, seed=seed), range(3 * CAPACITY))
        assert len({answer[0] for answer in answers}) == 3 * CAPACITY
    after = server.metrics()
    replicas = replicas_of(after)
    assert all(after[name] > before.get(name, 0) for name in replicas.values())
    nodes = {psutil.Process(pid).ppid() for pid in replicas}  # a node's raylet
    assert len(nodes) == 2
    batches = ("interleave_images_batch_size_sum", "interleave_images_batch_size_count")
    total, count = (after[name] - before[name] for name in batches)
    assert total / count > 1


def replicas_of(values):
    """Process -> its metric."""
    names = (name for name in values if name.startswith(IMAGES_TOTAL))
    return {int(name.removesuffix('"}').rpartition(":")[2]): name for name in names}


def test_full_server_sends_retry_after_and_disconnects_free_capacity(server):
    disconnected = threading.Event()

    def disconnect_while_waiting():
        endless = {"prompt": "a cat", "n": CAPACITY, "num_inference_steps": ENDLESS}
        timeout = httpx.Timeout(60, read=0.5)
        while not disconnected.is_set():
            try:
                httpx.post(server.url + DRAW, json=endless, timeout=timeout)
            except httpx.ReadTimeout:
                disconnected.set()

    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(disconnect_while_waiting)
        until(lambda: server.metrics()["interleave_images_queue"] == CAPACITY)
        full = server.post(DRAW, json={"prompt": "a red cat"})
        waiting.result()
    assert full.status_code == 429 and int(full.headers["Retry-After"]) >= 1
    until(lambda: server.metrics()["interleave_images_queue"] == 0)
    # Both replicas have cancelled what they had begun.
    with ThreadPoolExecutor(CAPACITY) as clients:
        assert all(clients.map(lambda seed: generate(server, seed=seed), range(CAPACITY)))


def test_dead_replica_is_replaced_while_the_other_continues(server):
    generate(server, n=CAPACITY)
    before = replicas_of(server.metrics())
    psutil.Process(next(iter(before))).kill()
    client = server.client(retries=8)
    for _ in range(8):
        assert client.images.generate(prompt="a red cat").data
    wait_until_ready(server)

    def used_new_replica():
        client.images.generate(prompt="a red cat", n=4)
        return set(replicas_of(server.metrics())) - set(before)

    until(used_new_replica)
