"""A mix of generators: who draws which prompt; see also `test_generator_mix_run.py`."""

from collections import Counter
from dataclasses import replace

import pytest
from pydantic import ValidationError

from assets.core.profile import Profile
from inference.backends.factory import Backends
from inference.generators import roles_of_prompt
from inference.roles import BackendError
from inference.settings import Limits, LoopSettings
from inference.shard import run_shard
from tests.inference.scripted_world import (
    SHARD,
    ScriptedGenerator,
    plan_rows_for,
    prompt_row,
    roles,
)
from warehouse import Home

PROMPTS = [prompt_row(f"p{n}") for n in range(24)]
PLANS = [row for prompt in PROMPTS for row in plan_rows_for(prompt, "a cat", "a hat on it")]
SKETCH = {"planner": "sketch", "critic": "sketch", "scorer": "sketch"}


def mixed(**weights):
    members = {name: ScriptedGenerator(backend=name, model=f"{name}-1") for name in weights}
    mix = tuple((members[name], weight) for name, weight in weights.items())
    return roles(generator=mix[0][0], mix=mix)


def drawing(backends, count=4000):
    names = (f"prompt {n}" for n in range(count))
    return {name: roles_of_prompt(backends, name).generator.backend for name in names}


def test_members_draw_as_many_prompts_as_their_weights_say():
    counts = Counter(drawing(mixed(nano=1, klein=3)).values())
    assert counts["klein"] / 4000 == pytest.approx(0.75, abs=0.025)
    assert set(drawing(roles()).values()) == {"scripted"}, "without a mix, the generator"


def test_another_weight_or_member_moves_prompts_to_it_alone():
    equal = drawing(mixed(nano=1, klein=1))
    assert drawing(mixed(klein=2, nano=2)) == equal, "neither order nor scale"
    for other, gains in (
        (mixed(nano=1, klein=2), "klein"),
        (mixed(nano=1, klein=1, qwen=1), "qwen"),
    ):
        changed = {name: to for name, to in drawing(other).items() if to != equal[name]}
        assert set(changed.values()) == {gains}
        assert len(changed) / 4000 == pytest.approx(1 / 6 if gains == "klein" else 1 / 3, abs=0.03)


async def run(home, backends):
    limits = Limits(backoff_seconds=0, failure_share=0)
    return await run_shard(PROMPTS, PLANS, backends, home, SHARD, LoopSettings(), limits)


async def test_members_draw_the_prompts_that_they_would_draw_alone(tmp_path):
    """What other members draw does not matter: the images of a prompt are its member's."""
    backends = mixed(nano=1, klein=1)
    mix = await run(Home(tmp_path / "mix"), backends)
    for generator, _ in backends.mix:
        alone = replace(mixed(nano=1, klein=1), generator=generator, mix=())
        expected = (await run(Home(tmp_path / generator.backend), alone)).attempts
        name = f"{generator.backend}/{generator.model}"
        own = [row for row in mix.attempts if row.generator == name]
        prompts = {row.prompt_id for row in own}
        columns = {"image", "prompt", "seed", "trajectory_id"}
        assert [row.model_dump(include=columns) for row in own] == [
            row.model_dump(include=columns) for row in expected if row.prompt_id in prompts
        ]


def test_a_profile_builds_every_member_and_the_first_draws_what_is_no_prompt(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    images = {"generator": {"model": "mine"}, "endpoints": [{"url": "http://127.0.0.1:9"}]}
    backends = Backends.model_validate(
        {"roles": {**SKETCH, "generator": {"images": 1, "sketch": 2}}, "images": images}
    )
    built = backends.build(Home("memory://mix"))
    assert [(each.backend, weight) for each, weight in built.mix] == [("images", 1), ("sketch", 2)]
    assert built.generator is built.mix[0][0]
    assert backends.bound == {
        "sketch": ["planner", "generator", "critic", "scorer"],
        "images": ["generator"],
    }
    for generator, message in (
        ("clay", "generator.backend\n"),
        ({"sketch": 1, "clay": 1}, r"generator.mix.clay.\[key\]"),
        ({"sketch": 1, "images": 0}, "greater than 0"),
        ({"sketch": 1}, "at least 2 items"),
    ):
        with pytest.raises(ValidationError, match=message):
            Backends.model_validate({"roles": {**SKETCH, "generator": generator}})


def test_every_member_must_take_what_the_loop_gives_it():
    images = {
        "generator": {"model": "flux2-klein-9b"},
        "endpoints": [{"url": "http://127.0.0.1:9"}],
    }
    profile = Profile.model_validate(
        {
            "name": "mine",
            "description": "A mix",
            "roles": {**SKETCH, "generator": {"images": 1, "sketch": 1}},
            "images": images,
            "pack": "sketchbook",
            "sizes": {"demo": 1},
            "loop": {"conditioning": "all"},
        }
    )
    with pytest.raises(BackendError, match=r"sketch/.* takes the last one only"):
        profile.build(Home("memory://mix"))
