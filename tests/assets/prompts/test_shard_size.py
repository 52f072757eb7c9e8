"""A bank with shards of another size is refused, before anything is written."""

from pathlib import Path

import pytest

from schemas.prompts import PROMPTS
from tests.helpers.command import interleave

PROFILE = """
name: mine
description: d
roles: {{planner: sketch, generator: sketch, critic: sketch, scorer: sketch}}
pack: sketchbook
sizes: {{demo: 2}}
bank: {{shard_size: {size}}}
"""
BANK = "taxonomy,vocabulary_expansion,vocabulary,templates,prompts"


@pytest.fixture
def run(capsys, home, tmp_path):
    def with_shard_size(size, select):
        path = tmp_path / f"size-{size}.yaml"
        path.write_text(PROFILE.format(size=size))
        options = ("--profile", path, "--home", home.root, "--select", select)
        return interleave(capsys, "run", *options)

    return with_shard_size


def files(home):
    lake = Path(home.local, "lake")
    return {path: path.stat().st_mtime_ns for path in lake.rglob("*.parquet")}


@pytest.mark.slow
def test_another_size_is_one_line_with_both_sizes_and_the_remedy(run, home):
    assert run(8, BANK).returncode == 0
    before = files(home)
    for select in (BANK, "plans"):
        done = run(12, select)
        assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert "sketchbook in shards of 8, profile mine wants shards of 12" in done.stderr
        assert "set `bank: {shard_size: 8}` in the profile" in done.stderr
        assert "another home (INTERLEAVE_HOME)" in done.stderr
    assert files(home) == before
    shards = home.lake.partitions(PROMPTS)
    assert [home.lake.rows(PROMPTS, shard) for shard in shards] == [8, 8]
