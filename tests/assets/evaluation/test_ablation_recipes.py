"""The ablation's unfiltered data: an export of its own, and an unchanged lake."""

import orjson

from assets.curation.settings import CurationSettings
from assets.curation.steps import build_steps
from assets.evaluation.ablation_recipes import unfiltered_critic_data
from schemas.curation import CRITIC_SFT, STEPS
from tests.assets.evaluation.sample_lake import write_sample_lake


def test_unfiltered_data_has_dropped_steps_and_leaves_the_lake_unchanged(home):
    write_sample_lake(home, 60)
    settings = CurationSettings()
    filtered, _ = build_steps(home, settings)
    assert any(row["drop_reason"] for row in filtered.read_all().to_pylist())
    data = unfiltered_critic_data(home, settings)
    assert not home.lake.partitions(STEPS) and not home.lake.partitions(CRITIC_SFT)
    assert not home.exports.exists()
    rows = orjson.loads((data.folder / "critic_sft.json").read_bytes())
    assert len(rows) == data.rows > 0
    assert all((data.folder / image).is_file() for row in rows for image in row["images"])
    data.require()
    assert unfiltered_critic_data(home, settings).version == data.version
