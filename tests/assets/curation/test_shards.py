"""Curation in groups of shards: the same rows with any grouping and any number of workers."""

import pytest

from assets.core import shard_map
from assets.curation import shards
from assets.curation.settings import CurationSettings
from assets.curation.steps import build_steps
from schemas import StorageError
from schemas.curation import CRITIC_SFT, STEPS
from schemas.trajectories import SCORES
from tests.assets.curation.curated_world import BUILDERS

SHARDS = 4


@pytest.fixture
def home(world):
    for number in range(40):
        rising = [(number % 7 + rise / 2, False) for rise in range(1 + number % 3)]
        chains = [[*rising, (9 - number % 2, True)], [(9, True)], [(1, number % 4 == 0), (8, True)]]
        split = "heldout" if number % 9 == 0 else "train"
        world.add(f"p{number}", *chains, shard=f"toy-{number % SHARDS:04d}", split=split)
    return world.write()


def curate(home, settings, builders=BUILDERS):
    """Content hash and what is reported of every set; the sets are stored."""
    results = {}
    for table, build in builders.items():
        rows, *reports = build(home, settings)
        written = home.lake.write(table, rows)
        results[table.name] = (written.rows, written.content_hash, *map(comparable, reports))
    return results


def comparable(report):
    """Without the variances, whose order is that of the groups."""
    return (report.splits, report.dropped, report.theta) if hasattr(report, "theta") else report


def settings(reviews=None, **balance):
    critic = {"balance_sft": {"mode": "up", **balance}, "balance_rl": {"mode": "down", **balance}}
    return CurationSettings(critic=critic, preferences={"scores": True}, reviews=reviews)


@pytest.mark.parametrize(
    ("options", "group_rows"), [({"seed": 5}, 100), ({"reviews": {"use": True}}, 1)]
)
def test_any_grouping_gives_the_same_rows(home, monkeypatch, options, group_rows):
    wanted = curate(home, settings(**options))
    assert all(rows for rows, *_ in wanted.values())
    monkeypatch.setattr(shard_map, "_in_threads", in_this_thread)
    monkeypatch.setattr(shards, "GROUP_ROWS", group_rows)
    assert curate(home, settings(**options)) == wanted


def test_workers_give_the_same_rows(home, monkeypatch):
    curate(home, settings(), {STEPS: BUILDERS[STEPS]})
    two_passes = {CRITIC_SFT: BUILDERS[CRITIC_SFT]}
    wanted = curate(home, settings(), two_passes)
    monkeypatch.setattr(shards, "GROUP_ROWS", 50)
    monkeypatch.setattr(shard_map, "worker_count", lambda: 2)
    assert curate(home, settings(), two_passes) == wanted


def test_a_damaged_file_is_named_and_nothing_is_written(home):
    path = next(home.local.glob(f"lake/{SCORES.name}/toy-0002/*.parquet"))
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError, match=f"{path} is damaged"):
        build_steps(home, CurationSettings())
    assert home.lake.partitions(STEPS) == []


def in_this_thread(function, groups):
    return (function(*group) for group in groups)
