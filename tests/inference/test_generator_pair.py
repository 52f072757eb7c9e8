"""A pair of generators: a text model for first images, an edit model for the rest."""

from contextlib import closing

import pytest
from pydantic import ValidationError

from inference.backends.factory import Backends
from inference.generators import GeneratorPair
from inference.images_server.models import SKETCH as SKETCH_MODEL
from inference.roles import BackendError, max_reference_images
from inference.settings import Limits, LoopSettings
from inference.shard import run_shard
from tests.inference.backends.diffusers.conftest import pipelines as tiny_pipelines
from tests.inference.backends.diffusers.conftest import shrink_megapixels
from tests.inference.backends.images.rules_server import images_profile, rules_server
from tests.inference.images_server.served_images import LocalReplica, served
from tests.inference.scripted_world import SHARD, ScriptedCritic, plan_rows_for, prompt_row, reject
from tests.inference.scripted_world import roles as scripted_roles
from tests.inference.service.running_service import images_of, running_service
from warehouse import Home
from warehouse.views import connect

pipelines = tiny_pipelines
SKETCH = {"planner": "sketch", "critic": "sketch", "scorer": "sketch"}
LIMITS = Limits(backoff_seconds=0, failure_share=0)


async def run(home, generator, **settings):
    """Two prompts of two steps; the last step's first image is rejected."""
    prompts = [prompt_row(f"p{n}") for n in range(2)]
    plans = [row for prompt in prompts for row in plan_rows_for(prompt, "a cat", "a hat on it")]
    critic = ScriptedCritic(verdicts={"a hat on it": [reject("a RED hat on it")]})
    backends = scripted_roles(generator=generator, critic=critic)
    return await run_shard(prompts, plans, backends, home, SHARD, LoopSettings(**settings), LIMITS)


def drawn(result):
    """Step -> model, of the calls that drew."""
    calls = [call for call in result.calls if call.role == "generator"]
    return {(call.step_number, call.model) for call in calls}


async def test_the_loop_draws_with_two_models_at_two_servers(tmp_path):
    with rules_server("sglang", "text") as text, rules_server("vllm-omni", "edit") as edit:
        endpoint = {"url": f"{edit.url}/v1"}
        model = {"model": "edit", "endpoints": [endpoint], "references": 2, "guidance": 4.0}
        backends = images_profile(text.url, model="text", steps=4, edit=model)
        pair = backends.build(Home("memory://pair")).generator
        assert max_reference_images(pair) == 2
        result = await run(Home(tmp_path), pair, conditioning="all")
        again = await run(Home(tmp_path), pair, conditioning="all")
    assert {request.endpoint for request in text.requests} == {"generations"}
    assert {request.endpoint for request in edit.requests} == {"edits"}
    assert (len(text.requests), len(edit.requests)) == (2, 3)
    assert edit.requests[0].fields["guidance_scale"] == "4.0"
    assert "guidance_scale" not in text.requests[0].fields
    assert isinstance(pair, GeneratorPair)
    assert drawn(result) == {(1, pair.first.model), (2, pair.edit.model)}
    assert {row.generator for row in result.attempts} == {f"images/{pair.model}"}
    assert pair.model == f"{pair.first.model}+{pair.edit.model}"
    assert [row.seed for row in again.attempts] == [row.seed for row in result.attempts]


async def test_another_edit_model_draws_no_first_image_again(tmp_path):
    with rules_server("sglang", "text") as text:
        for name in ("one", "other"):
            with rules_server("sglang", name) as edit:
                endpoints = [{"url": f"{edit.url}/v1"}]
                backends = images_profile(
                    text.url, model="text", edit={"model": name, "endpoints": endpoints}
                )
                await run(Home(tmp_path), backends.build(Home("memory://pair")).generator)
                assert len(edit.requests) == 3
    assert len(text.requests) == 2


def test_the_identity_of_a_model_is_that_which_it_has_alone():
    url = "http://127.0.0.1:9"
    alone = images_profile(url, model="text", steps=4).images.generator
    pair = images_profile(url, model="text", steps=4, edit={"model": "edit"}).images.generator
    assert alone and pair and alone.identity == pair.identity


def test_servers_and_prices_of_both_models_are_checked():
    servers = {"text": {"kind": "images", "model": "sketch", "gpus": []}}
    generator = {"model": "sketch", "endpoints": [{"server": "text"}]}
    profile = {"roles": {**SKETCH, "generator": "images"}, "servers": servers}
    with pytest.raises(ValidationError, match=r"no `servers.edits`; there are: text"):
        edit = {"model": "flux1-kontext-dev", "endpoints": [{"server": "edits"}]}
        Backends.model_validate(profile | {"images": {"generator": generator | {"edit": edit}}})
    servers["edits"] = {"kind": "images", "model": "flux1-kontext-dev", "gpus": []}
    backends = Backends.model_validate(
        profile | {"images": {"generator": generator | {"edit": edit}}}
    )
    assert backends.servers_of("generator") == {"text", "edits"}
    images = {"images": {"generator": generator | {"edit": edit}}}
    priced = Backends.model_validate(
        profile | images | {"budget": {"usd": 1}, "prices": {"sketch": {}}}
    )
    with pytest.raises(BackendError, match="no price of flux1-kontext-dev"):
        priced.build(Home("memory://pair"))


async def test_the_loop_draws_with_two_tiny_pipelines_in_this_process(
    pipelines, tmp_path, monkeypatch
):
    shrink_megapixels(monkeypatch)
    quick = {"steps": 2, "size": "64x64", "device": "cpu"}
    edit = {"model": str(pipelines("QwenImageEditPipeline")), **quick}
    settings = {"model": str(pipelines("QwenImagePipeline")), **quick, "edit": edit}
    profile = {"roles": {**SKETCH, "generator": "diffusers"}, "diffusers": settings}
    pair = Backends.model_validate(profile).build(Home("memory://pair")).generator
    assert isinstance(pair, GeneratorPair) and max_reference_images(pair) == 1
    result = await run(Home(tmp_path), pair)
    assert drawn(result) == {(1, pair.first.model), (2, pair.edit.model)}
    assert pair.first.model != pair.edit.model
    assert not result.quarantine and len(result.attempts) == 5


def test_a_second_model_that_cannot_edit_is_an_error():
    settings = {"model": "qwen-image", "edit": {"model": "flux1-krea-dev"}}
    profile = {"roles": {**SKETCH, "generator": "diffusers"}, "diffusers": settings}
    with pytest.raises(BackendError, match="flux1-krea-dev does not edit images"):
        Backends.model_validate(profile).build(Home("memory://pair"))


def test_a_service_answers_with_two_models_behind_our_servers(home):
    """Its ledger names the one that drew; a server that is gone is noticed, whichever it is."""
    request = "Show how to build a snowman in 4 steps"
    with served(SKETCH_MODEL, LocalReplica(SKETCH_MODEL)) as first:
        with served(SKETCH_MODEL, LocalReplica(SKETCH_MODEL)) as second:
            edit = {"model": "sketch", "steps": 3, "endpoints": [{"url": f"{second.url}/v1"}]}
            backends = images_profile(first.url, model="sketch", edit=edit)
            roles = backends.build(home)
            with running_service(home, roles) as service:
                answer = service.client().responses.create(model="interleave", input=request)
            assert backends.first_failure(roles.names, 5) is None
        problem = backends.first_failure(roles.names, 5)
        assert problem and second.url in problem
    pair = roles.generator
    assert isinstance(pair, GeneratorPair)
    assert len(images_of(answer)) == 4
    with closing(connect(home)) as connection:
        sql = "select model, min(step_number) from model_calls where role = 'generator' group by 1"
        drew = dict(connection.sql(sql).fetchall())
    assert drew == {pair.first.model: 1, pair.edit.model: 2}
