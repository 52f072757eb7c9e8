"""Processes that make shards at the same time share the profile's limits."""

import pytest
import yaml

from assets.core.foundry import FoundryResource
from assets.core.profile import load_profile


@pytest.fixture
def profile(tmp_path):
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


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_shares_add_up_to_the_limits(profile, processes):
    shares = [limits_of(profile.share(number, processes)) for number in range(processes)]
    assert [sum(each) for each in zip(*shares, strict=True)] == limits_of(profile)
    assert max(shares[0]) - max(shares[-1]) <= 1


def test_nothing_else_changes(profile):
    changed = profile.share(0, 2).model_dump()
    sections = ("limits", "rounds", "openai", "images", "gemini")
    assert [name for name, value in profile.model_dump().items() if value != changed[name]] == [
        name for name in profile.model_dump() if name in sections
    ]
    assert profile.share(0, 2).limits.tries == profile.limits.tries


def test_no_more_processes_than_the_smallest_limit_of_calls_to_endpoints(profile):
    assert profile.most_processes == 7, "both models name endpoints of their own"
    assert load_profile("sketch").most_processes is None


def test_a_process_of_several_has_its_share(tmp_path):
    alone = FoundryResource(profile="paper", root=str(tmp_path), size="pilot")
    second = FoundryResource(
        profile="paper", root=str(tmp_path), size="pilot", processes=5, process=1
    )
    assert alone.settings.limits.agents == 64 and second.settings.limits.agents == 13
    assert second.settings.budget == alone.settings.budget
