"""What finished shards say of those to come."""

from datetime import timedelta

import dagster as dg
import pytest

from assets.core.foundry import SHARDS, FoundryResource
from assets.trajectories.forecast import forecast_metadata, ledger_forecast
from schemas.trajectories import MODEL_CALLS, SCORES, TRAJECTORIES
from tests.helpers.ledger import START, model_call

MODELS = {"openai/m-1"}


def add_shards(home, count, start=lambda n: START + timedelta(hours=n), calls=30, **changes):
    """Shards whose calls take 2 s each, one after the other; their costs differ."""
    for n in range(count):
        shard = f"a-{n:04}"
        rows = [
            model_call(
                k,
                shard=shard,
                prompt_id=f"{shard}-{k}",
                cost_usd=0.01 * (1 + n % 3),
                started_at=start(n) + timedelta(seconds=2 * k),
            ).model_copy(update=changes)
            for k in range(calls)
        ]
        home.lake.write(MODEL_CALLS, rows, f"trajectories-{shard}")
        home.lake.write(SCORES, [], shard)


def test_shards_give_costs_and_hours(home):
    add_shards(home, 6)
    found = ledger_forecast(home, MODELS, to_come=300)
    assert (found.shards, found.prompts) == (6, 180)
    assert found.usd_per_prompt == pytest.approx(0.02)
    usd, seconds = found.forecast.usd, found.forecast.seconds
    assert usd.expected == pytest.approx(6) and usd.low < 6 < usd.high
    assert [*seconds] == pytest.approx([600] * 3), "no time of pauses"


def test_shards_at_the_same_time_end_sooner_and_few_have_costs_by_prompt_alone(home):
    add_shards(home, 1)
    few = ledger_forecast(home, MODELS, to_come=300)
    assert few.forecast.seconds is None
    assert few.forecast.usd.expected == pytest.approx(3.0)
    assert "30 prompts of 1 shard here" in few.source
    add_shards(home, 6, start=lambda n: START + timedelta(hours=n // 2))
    found = ledger_forecast(home, MODELS, to_come=300)
    assert found.forecast.seconds.expected == pytest.approx(300)


def test_what_other_models_did_or_has_no_price_says_nothing(home):
    add_shards(home, 6)
    assert ledger_forecast(home, MODELS | {"openai/new-critic"}, to_come=300).shards == 0
    for changes in ({"model": "other"}, {"cached": True}):
        add_shards(home, 6, **changes)
        found = ledger_forecast(home, MODELS, to_come=300)
        assert (found.shards, found.usd_per_prompt, found.forecast.text) == (0, None, "")
    add_shards(home, 6, cost_usd=None)
    found = ledger_forecast(home, MODELS, to_come=300)
    assert found.usd_per_prompt is None and found.forecast.usd is None and found.forecast.seconds


def test_dagster_is_shown_the_registered_shards_without_trajectories(home):
    instance = dg.DagsterInstance.ephemeral()
    foundry = FoundryResource(root=home.root)
    add_shards(home, 6)
    home.lake.write(TRAJECTORIES, [], "a-0000")
    assert forecast_metadata(foundry, instance, MODELS) == {}
    instance.add_dynamic_partitions(str(SHARDS.name), ["a-0000", "a-0001", "a-0002"])
    shown = forecast_metadata(foundry, instance, MODELS)["forecast"]
    assert shown.startswith("200 prompts to come: ends ") and " USD more (90% interval" in shown
