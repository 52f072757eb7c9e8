"""A small profile, a real Dagster instance to materialize it with, and a lake to start from."""

import os
import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
import yaml

from assets.core.foundry import FoundryResource
from dagster_project.instance import open_instance
from dagster_project.run import run_lineage
from tests.conftest import made_once
from tests.helpers.webhook import webhook_server

TINY_PROFILE = """
    name: tiny
    description: A few prompts, small pictures
    roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}
    pack: sketchbook
    sizes: {demo: 1, two: 2}
    bank: {shard_size: 25}
    sketch: {picture_size: 96}
"""


def tiny_foundry(folder: Path, root: object = None, **sections: object) -> FoundryResource:
    """A lake (default: in the folder) with a profile of few prompts and of further sections."""
    path = folder / f"tiny-{len(list(folder.glob('tiny-*')))}.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(TINY_PROFILE) | sections))
    return FoundryResource(profile=str(path), root=str(root or folder / "lake"))


@pytest.fixture
def profile(tmp_path):
    return tiny_foundry(tmp_path).profile


@pytest.fixture
def foundry(tmp_path, profile) -> FoundryResource:
    return FoundryResource(profile=profile, root=str(tmp_path / "lake"))


@contextmanager
def opened(foundry: FoundryResource) -> Iterator[dg.DagsterInstance]:
    """The instance of a home; Dagster's home, which that sets, is forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", "")
        with open_instance(foundry.home, foundry.settings.cluster) as instance:
            yield instance


@pytest.fixture
def instance(foundry):
    with opened(foundry) as instance:
        yield instance


@pytest.fixture
def webhook(monkeypatch):
    """A server whose URL is in $TEST_WEBHOOK."""
    with webhook_server() as server:
        monkeypatch.setenv("TEST_WEBHOOK", server.url)
        yield server


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """The folder of a lake with one shard and everything made from it."""

    def make(folder):
        foundry = tiny_foundry(folder)
        with opened(foundry) as instance:
            run_lineage(foundry, instance, shards=1)

    return made_once(tmp_path_factory, "sample", make) / "lake"


@pytest.fixture
def sampled(sample, foundry):
    """`foundry`, whose lake is a copy of the sample; ask for it before `instance`."""
    copy_lake(sample, Path(foundry.root))
    return foundry


def trained_foundry(trained_folder: Path, lake: Path, sections: str = "") -> FoundryResource:
    """A copy of the trained lineage as `lake`, whose profile promotes what a few steps taught.

    Args:
        sections: added to the profile.
    """
    copy_lake(trained_folder / ".interleave", lake)
    path = lake.with_suffix(".yaml")
    profile = (trained_folder / "small.yaml").read_text()
    promotes = "  retrain_after_rows: 1\n  promote_at_least: {}"
    profile = profile.replace("  side_by_side: true", promotes)  # tests replace the launcher
    path.write_text(profile + textwrap.dedent(sections))
    return FoundryResource(profile=str(path), root=str(lake))


def copy_lake(source: Path, target: Path) -> None:
    """Images, which never change, are linked; all else is copied."""

    def copy(file, copied):
        return os.link(file, copied) if file.endswith(".png") else shutil.copy2(file, copied)

    shutil.copytree(source, target, copy_function=copy)
