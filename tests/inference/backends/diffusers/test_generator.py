"""The generator as a profile builds it, alone and in the loop, with tiny pipelines."""

import pytest

from inference.backends.factory import Backends
from inference.roles import BackendError, Generator
from inference.settings import Limits, LoopSettings
from inference.shard import run_shard
from tests.inference.backends.diffusers.conftest import shrink_megapixels
from tests.inference.scripted_world import SHARD, plan_rows_for, prompt_row, roles
from warehouse import EncodedImage

ROLES = {"planner": "sketch", "critic": "sketch", "scorer": "sketch", "generator": "diffusers"}


def generator(home, **settings):
    quick = {"steps": 2, "size": "64x64", "device": "cpu"} | settings
    profile = Backends.model_validate({"roles": ROLES, "diffusers": quick})
    return profile.build(home).generator


@pytest.fixture
def kontext(pipelines, home, monkeypatch):
    shrink_megapixels(monkeypatch)
    return generator(home, model=str(pipelines("FluxKontextPipeline")))


async def test_an_image_is_generated_and_edited(kontext):
    assert isinstance(kontext, Generator)
    first = await kontext.generate("a red cat", (), 1)
    second = await kontext.generate("the cat is asleep", (first,), 2)
    assert first.image.size == second.image.size == (64, 64)
    assert first != second
    assert kontext.backend == "diffusers" and kontext.model.startswith("tiny@")


async def test_a_model_that_only_edits_starts_from_a_white_canvas(pipelines, home, monkeypatch):
    shrink_megapixels(monkeypatch)
    folder = str(pipelines("QwenImageEditPipeline"))
    generated = await generator(home, model=folder).generate("a red cat", (), 1)
    edited = await generator(home, model=folder).generate(
        "a red cat", (EncodedImage.white((64, 64)),), 1
    )
    assert generated == edited


@pytest.mark.parametrize("pipeline", ["QwenImage21Pipeline", "Flux2KleinKVPipeline"])
async def test_the_story_so_far_is_shown_to_models_of_several_references(
    pipeline, pipelines, home, monkeypatch
):
    shrink_megapixels(monkeypatch)
    drawing = generator(home, model=str(pipelines(pipeline)))
    shown, call = [], drawing._runner._pipeline.__class__.__call__
    monkeypatch.setattr(
        drawing._runner._pipeline.__class__,
        "__call__",
        lambda self, **given: shown.append(len(given.get("image", ()))) or call(self, **given),
    )
    prompt, loop = prompt_row("p"), LoopSettings(t_max=1, conditioning="all")
    plans = plan_rows_for(prompt, "a cat", "a dog", "a bird")
    run = await run_shard([prompt], plans, roles(generator=drawing), home, SHARD, loop, Limits())
    assert [row.status for row in run.trajectories] == ["complete"] and shown == [0, 1, 2]


def test_a_model_that_the_loop_cannot_use_is_rejected(home):
    with pytest.raises(BackendError, match="flux1-fill-dev only repaints what a mask shows"):
        generator(home, model="flux1-fill-dev")
