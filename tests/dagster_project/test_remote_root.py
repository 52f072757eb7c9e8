"""The whole lineage with its lake and images on other filesystems than a folder."""

import os
import subprocess

import pytest

from assets.core.foundry import FoundryResource
from dagster_project.instance import open_instance
from dagster_project.run import run_lineage
from dagster_project.stages import select_nodes
from interleave_foundry import query
from schemas.trajectories import ATTEMPTS
from tests.helpers.command import INTERLEAVE
from warehouse.views import refresh_views

pytestmark = pytest.mark.slow

MANY = "select count(*) > 25 as many from attempts"


@pytest.fixture
def local(tmp_path, monkeypatch):
    """The folder of what cannot be remote: journals, views, Dagster's storage, exports."""
    folder = tmp_path / "local"
    monkeypatch.setenv("INTERLEAVE_LOCAL", str(folder))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return folder


def everything_is_made_once(foundry):
    with open_instance(foundry.home) as instance:
        first = run_lineage(foundry, instance, shards=1)
        again = run_lineage(foundry, instance, shards=1)
    expected = {node.name for node in select_nodes([], foundry.settings)}
    assert {name.partition("[")[0] for name in first.materialized} == expected
    assert not again.materialized


def everything_is_readable(home, local):
    refresh_views(home)
    counts = query(
        "select (select count(*) from attempts) as attempts, (select count(*) from scores) as "
        "scores, (select count(*) from critic_sft) as sft",
        home,
    ).iloc[0]
    assert counts.attempts == counts.scores > 25 and counts.sft > 0
    for name in home.lake.read(ATTEMPTS, columns=["image"])["image"].to_pylist()[:5]:
        assert home.images.get(name).image.size == (96, 96)
    assert (local / "exports" / "llamafactory" / "dataset_info.json").is_file()
    assert any((local / "exports" / "llamafactory" / "images").rglob("*.png"))
    assert not (local / "lake").exists()


def test_the_lake_in_memory(profile, local):
    foundry = FoundryResource(profile=profile, root="memory://stories")
    everything_is_made_once(foundry)
    everything_is_readable(foundry.home, local)


@pytest.mark.long
def test_the_lake_in_a_bucket(profile, local, bucket):
    foundry = FoundryResource(profile=profile, root=bucket)
    everything_is_made_once(foundry)
    everything_is_readable(foundry.home, local)
    done = subprocess.run(
        [*INTERLEAVE, "sql", MANY, "--home", bucket, "--format", "csv"],
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    assert done.stdout == "many\ntrue\n", done.stderr


def test_a_bucket_that_is_not_there_is_one_clear_line(profile, local, bucket):
    done = subprocess.run(
        [*INTERLEAVE, "run", "--profile", profile, "--home", "s3://no-such-bucket/stories"],
        capture_output=True,
        text=True,
        env=dict(os.environ),
    )
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1 and "does not exist" in done.stderr
