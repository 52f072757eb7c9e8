"""The whole lineage with its lake and images on other filesystems than a folder."""

import pytest

from assets.core.foundry import FoundryResource
from dagster_project.run import run_lineage
from dagster_project.stages import select_nodes
from interleave_foundry import query
from schemas.trajectories import ATTEMPTS, PLANS, SCORES
from tests.dagster_project.conftest import opened, tiny_foundry
from tests.helpers.command import interleave
from warehouse.views import refresh_views

pytestmark = pytest.mark.slow

MANY = "select count(*) > 10 as many from attempts"


@pytest.fixture
def profile(tmp_path):
    """With few prompts: an S3 server answers some hundred requests a second."""
    return tiny_foundry(tmp_path, bank={"shard_size": 5}).profile


@pytest.fixture
def local(tmp_path, monkeypatch):
    """The folder of what cannot be remote: journals, views, Dagster's storage, exports."""
    folder = tmp_path / "local"
    monkeypatch.setenv("INTERLEAVE_LOCAL", str(folder))
    return folder


def everything_is_made_once(foundry):
    with opened(foundry) as instance:
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
    assert counts.attempts == counts.scores > 10 and counts.sft > 0
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
def test_the_lake_in_a_bucket_and_its_repair(profile, local, bucket, capsys):
    foundry = FoundryResource(profile=profile, root=bucket)
    everything_is_made_once(foundry)
    everything_is_readable(foundry.home, local)
    done = interleave(capsys, "sql", MANY, "--home", bucket, "--format", "csv")
    assert done.stdout == "many\ntrue\n", done.stderr
    damage_is_named_and_repaired(foundry.home, lambda *more: verify(capsys, bucket, profile, *more))


def damage_is_named_and_repaired(home, verify):
    plans, images = home.lake.content_hashes(PLANS), home.lake.read(ATTEMPTS, columns=["image"])
    image = images["image"][0].as_py()
    files = [f"lake/{table.name}/sketchbook-0000/part-0.parquet" for table in (PLANS, SCORES)]
    files.append(f"images/{home.images.relative_path(image)}")
    segments = (name for name, _ in home.storage.walk() if name.startswith("journals/plans/"))
    files.append(next(name for name in segments if ".jsonl" in name))
    for file in files:
        flip_middle(home, file)

    code, lines = verify()
    assert code == 1 and len(lines) == len(files) + 1
    assert all(any(line.startswith(f"{home.root}/{file}:") for line in lines) for file in files)
    code, lines = verify("--repair")
    assert code == 0, "\n".join(lines)
    assert verify()[0] == 0
    assert home.lake.content_hashes(PLANS) == plans  # other tables have new times of drawing
    assert home.lake.read(ATTEMPTS, columns=["image"]).equals(images) and home.images.get(image)


def flip_middle(home, file):
    data = bytearray(home.storage.read(file))
    data[len(data) // 2] ^= 1
    home.storage.write(file, bytes(data))


def verify(capsys, bucket, profile, *arguments):
    """Exit code and lines of the command."""
    done = interleave(capsys, "verify", "--home", bucket, "--profile", profile, *arguments)
    return done.returncode, done.stdout.splitlines()


def test_a_bucket_that_is_not_there_is_one_clear_line(profile, local, bucket, capsys):
    home = "s3://no-such-bucket/stories"
    done = interleave(capsys, "run", "--profile", profile, "--home", home)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1 and "does not exist" in done.stderr
