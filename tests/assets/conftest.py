import pytest

from tests.assets.curation.curated_world import World
from warehouse import Home


@pytest.fixture
def world(tmp_path) -> World:
    return World(Home(tmp_path / "home"))
