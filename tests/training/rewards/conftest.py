import pytest

from tests.training.rewards.reward_world import RewardWorld


@pytest.fixture
def world(home) -> RewardWorld:
    return RewardWorld(home)
