"""The bench of lineage on a handful of shards: no time is asserted."""

import pytest

from bench import lineage


@pytest.mark.long
def test_every_number_is_measured(monkeypatch):
    monkeypatch.setattr(lineage, "SIZES", (2,))
    monkeypatch.setattr(lineage, "NEW", 1)
    monkeypatch.setattr(lineage, "MOST", 4)
    values = lineage.measure()
    fixed = {name for name in lineage.MEANING if not name[-1].isdigit()}
    assert values.keys() == fixed | {"lineage_shard_seconds_2", "lineage_shards_a_minute_2"}
    assert all(value > 0 for value in values.values())
