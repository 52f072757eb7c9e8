"""A home with evaluated material, made once a worker and copied for every test."""

import shutil

import pytest

from tests.assets.evaluation.sample_lake import write_sample_lake
from warehouse import Home


@pytest.fixture(scope="session")
def sample_template(tmp_path_factory):
    root = tmp_path_factory.mktemp("sample") / "home"
    write_sample_lake(Home(root), 24)
    return root


@pytest.fixture
def sample_home(sample_template, tmp_path) -> Home:
    """A home of 24 requests, eight of each split, with their trajectories and scores."""
    return Home(shutil.copytree(sample_template, tmp_path / "sample"))
