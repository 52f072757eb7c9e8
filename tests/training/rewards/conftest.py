from collections.abc import Iterator

import pytest

from tests.training.rewards.reward_world import RewardWorld


@pytest.fixture
def world(home) -> Iterator[RewardWorld]:
    world = RewardWorld(home)
    yield world
    world.end()
