"""The ablation's unfiltered data: an export of its own beside a lake that stays as it was."""

import orjson

from assets.curation.settings import CurationSettings
from assets.curation.steps import build_steps
from assets.evaluation.unfiltered import unfiltered_critic_data
from schemas.curation import CRITIC_SFT, STEPS
from tests.assets.evaluation.sample_lake import tell


def test_it_has_steps_that_the_filter_drops_and_changes_nothing_else(home):
    tell(home, 60)
    settings = CurationSettings()
    filtered, _ = build_steps(home, settings)
    dropped = [row for row in filtered.to_pylist() if row["drop_reason"]]
    assert dropped
    data = unfiltered_critic_data(home, settings)
    assert not home.lake.partitions(STEPS) and not home.lake.partitions(CRITIC_SFT)
    assert not home.exports.exists()
    rows = orjson.loads((data.folder / "critic_sft.json").read_bytes())
    assert len(rows) == data.rows > 0
    assert all((data.folder / image).is_file() for row in rows for image in row["images"])
    data.require()


def test_equal_sources_give_the_same_version(home):
    tell(home, 30)
    first = unfiltered_critic_data(home, CurationSettings())
    assert unfiltered_critic_data(home, CurationSettings()).version == first.version
