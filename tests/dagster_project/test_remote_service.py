"""`interleave serve` with another profile: agents and generator at a provider, a lake on S3."""

import base64
import io
from contextlib import ExitStack

import httpx
import pytest
from PIL import Image

from tests.dagster_project.conftest import tiny_foundry
from tests.inference.backends.providers.faulty_provider import KEY, provider
from tests.inference.service.running_service import SNOWMAN, serving, wait_until
from warehouse import Home
from warehouse.sql import query

pytestmark = pytest.mark.long

ROLES = ("planner", "generator", "critic", "scorer")


@pytest.fixture
def profile_at(tmp_path, monkeypatch):
    """A profile whose models are all at a provider of our own."""
    monkeypatch.setenv("TEST_KEY", KEY)

    def written(server):
        models = {role: {"model": f"{role}-1"} for role in ROLES}
        gemini = {"endpoints": [{"url": server.url, "key": "TEST_KEY"}], **models}
        return tiny_foundry(tmp_path, roles=dict.fromkeys(ROLES, "gemini"), gemini=gemini).profile

    return written


@pytest.fixture
def elsewhere(profile_at):
    with provider() as server:
        yield profile_at(server)


def test_a_provider_answers_a_request_into_a_bucket(elsewhere, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("INTERLEAVE_LOCAL", str(tmp_path / "local"))
    with serving(bucket, "--profile", elsewhere) as (process, client):
        with client.responses.stream(model="interleave", input=SNOWMAN) as events:
            story = events.get_final_response()
        process.terminate()
        process.wait(60)
    pictures = [item.result for item in story.output if item.type == "image_generation_call"]
    assert len(pictures) == 4
    for picture in pictures:
        assert Image.open(io.BytesIO(base64.b64decode(picture))).size[0] > 90

    row = query("select planner, generator, critic, status from generations", Home(bucket)).iloc[0]
    assert row.status == "complete"
    for role in ROLES[:3]:
        assert row[role].startswith(f"gemini/{role}-1")
    calls = query("select distinct role, backend from model_calls order by role", Home(bucket))
    assert calls.values.tolist() == [[role, "gemini"] for role in sorted(ROLES[:3])]
    with serving(bucket, "--profile", elsewhere) as (_, client):
        assert client.responses.retrieve(story.id).status == "completed"


def test_it_is_ready_while_its_models_answer(profile_at, home):
    with ExitStack() as open_now:
        with provider() as server:
            profile = profile_at(server)
            _, client = open_now.enter_context(serving(home.root, "--profile", profile))
            ready = f"{str(client.base_url).removesuffix('v1/')}ready"
            assert httpx.get(ready).json()["ready"]
        wait_until(lambda: httpx.get(ready).status_code == 503)
        reason = httpx.get(ready).json()["error"]["message"]
        assert reason.startswith(f"planner: {server.url}") and "no answer" in reason
        assert KEY not in reason
