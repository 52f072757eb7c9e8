"""Profiles: what differs at a size, from the profile of its base, and in one of many processes."""

import re

import pytest
import yaml

from assets.core.foundry import FoundryResource
from assets.core.profile import load_profile
from schemas import DocumentError, FoundryError
from schemas.trajectories import TRAJECTORIES

PROFILE = """
name: sized
description: Fewer steps at first
roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}
pack: sketchbook
sizes: {demo: 1, full: 2}
evaluation: {redraws: 4}
size_changes: {demo: {evaluation: {redraws: 1}}}
"""


@pytest.fixture
def profile(tmp_path):
    def write(text=PROFILE):
        path = tmp_path / "sized.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_a_size_changes_only_what_it_names(profile):
    full, demo = load_profile(profile()), load_profile(profile()).at_size("demo")
    assert (full.evaluation.redraws, demo.evaluation.redraws) == (4, 1)
    changed = {"evaluation", "size_changes"}
    assert demo.model_dump(exclude=changed) == full.model_dump(exclude=changed)


def test_a_lake_has_the_size_that_its_shards_have_reached(profile, tmp_path):
    def redraws(size=""):
        root = str(tmp_path / "lake")
        return FoundryResource(profile=profile(), root=root, size=size).settings.evaluation.redraws

    assert (redraws(), redraws("full")) == (1, 4)
    lake = FoundryResource(profile=profile(), root=str(tmp_path / "lake")).home.lake
    for shard in ("sketchbook-0000", "sketchbook-0001"):
        assert redraws() == 1
        lake.write(TRAJECTORIES, [], shard)
    assert (redraws(), redraws("demo")) == (4, 1)


def test_a_size_with_another_budget_alone_is_not_reduced(profile, tmp_path):
    def reduced(text, size="demo"):
        file, root = profile(text), str(tmp_path / "lake")
        load_profile.cache_clear()
        return FoundryResource(profile=file, root=root, size=size).reduced

    assert reduced(PROFILE) and not reduced(PROFILE, "full")
    assert not reduced(PROFILE.replace("{evaluation: {redraws: 1}}", "{budget: {usd: 5}}"))


def test_a_wrong_change_is_named(profile):
    mistakes = {
        "{small: {}}": "size_changes.small: there is no such size",
        "{demo: {evaluation: {redrawn: 1}}}": "size_changes.demo.evaluation.redrawn",
        "{demo: {evaluation: {redraws: many}}}": "size_changes.demo.evaluation.redraws",
    }
    for wrong, message in mistakes.items():
        load_profile.cache_clear()
        with pytest.raises(DocumentError, match=message):
            load_profile(profile(PROFILE.replace("{demo: {evaluation: {redraws: 1}}}", wrong)))


def test_a_profile_says_what_differs_from_its_base(profile, tmp_path):
    sketch, own = (
        load_profile("sketch"),
        load_profile(profile("base: sketch\nname: own\nloop: {t_max: 2}\n")),
    )
    assert (own.name, own.loop.t_max) == ("own", 2)
    changed = {"name", "loop"}
    assert own.model_dump(exclude=changed) == sketch.model_dump(exclude=changed)
    last = tmp_path / "last.yaml"
    last.write_text(f"base: {profile()}\nsize_changes: {{demo: {{evaluation: {{redraws: 2}}}}}}\n")
    assert load_profile(str(last)).at_size("demo").evaluation.redraws == 2


def test_a_wrong_base_or_round_is_named(profile, tmp_path):
    mistakes = {
        "base: nothing": "no profile 'nothing'",
        "base: sketch\nloop: {tmax: 2}": "sized.yaml:2: loop.tmax",
        f"base: {tmp_path / 'sized.yaml'}": "base: name a profile, or the path of a .yaml file",
        "base: [sketch]": "base: name a profile",
    }
    mistakes["base: sketch\nrounds: {training: {planner_rl: {recipe: sketch}}}"] = (
        "rounds.training.planner_rl: rounds reinforce the critic"
    )
    for text, message in mistakes.items():
        load_profile.cache_clear()
        with pytest.raises(FoundryError, match=re.escape(message)):
            load_profile(profile(text))


@pytest.fixture
def hosted(tmp_path):
    """A profile with limits of its own, and endpoints of providers and of models."""
    agent = {"model": "m", "endpoints": [{"url": "http://one", "concurrency": 7}]}
    path = tmp_path / "own.yaml"
    content = {
        "base": "sketch",
        "roles": {"planner": "openai", "generator": "images", "scorer": "gemini"},
        "openai": {"planner": agent},
        "images": {"endpoints": [{"url": "http://two", "concurrency": 5}], "generator": agent},
        "gemini": {"endpoints": [{"key": "A"}, {"key": "B"}], "scorer": {"model": "g"}},
        "limits": {"generator": 12, "agents": 13, "trajectories_in_flight": 20},
        "rounds": {"in_flight": 9},
    }
    path.write_text(yaml.safe_dump(content))
    return load_profile(str(path))


def limits_of(profile):
    endpoints = [*profile.gemini.endpoints, *profile.images.endpoints]
    endpoints += [*profile.openai.planner.endpoints, *profile.images.generator.endpoints]
    limits = profile.limits
    counts = (limits.generator, limits.agents, limits.trajectories_in_flight)
    return [*counts, profile.rounds.in_flight, *(endpoint.concurrency for endpoint in endpoints)]


def test_shares_of_processes_add_up_to_the_limits(hosted):
    for processes in (2, 3, 5):
        shares = [limits_of(hosted.share(number, processes)) for number in range(processes)]
        assert [sum(each) for each in zip(*shares, strict=True)] == limits_of(hosted)
        assert max(shares[0]) - max(shares[-1]) <= 1
    changed = hosted.share(0, 2).model_dump()
    sections = ("limits", "rounds", "openai", "images", "gemini")
    assert [name for name, value in hosted.model_dump().items() if value != changed[name]] == [
        name for name in hosted.model_dump() if name in sections
    ]
    assert hosted.share(0, 2).limits.tries == hosted.limits.tries


def test_no_more_processes_than_the_smallest_limit_of_calls_to_endpoints(hosted):
    assert hosted.most_processes == 7, "both models name endpoints of their own"
    assert load_profile("sketch").most_processes is None


def test_a_process_of_several_has_its_share(tmp_path):
    alone = FoundryResource(profile="paper", root=str(tmp_path), size="pilot")
    second = FoundryResource(
        profile="paper", root=str(tmp_path), size="pilot", processes=5, process=1
    )
    assert alone.settings.limits.agents == 64 and second.settings.limits.agents == 13
    assert second.settings.budget == alone.settings.budget
