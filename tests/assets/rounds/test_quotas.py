"""Quotas by failures: bounded, deterministic, and without effect on prompts that exist already."""

from collections import Counter

import pytest

from assets.core.statistics import wilson_interval
from assets.prompts.bank import PromptBank
from assets.prompts.pack_loader import load_pack
from assets.prompts.rounds import Quotas, TrainStretch, recorded_rounds
from assets.prompts.settings import BankSettings, FailureQuotaSettings
from assets.rounds.results import bounded_weights, quotas_of
from schemas import FoundryError
from schemas.rounds import FailureRow

SETTINGS = BankSettings(shard_size=50)
AGENTS = {"planner": "planner_sft_checkpoint@aa", "critic": "critic_rl_checkpoint@bb"}


def bank(count, *stretches):
    return PromptBank(load_pack("sketchbook"), SETTINGS, count, stretches).prompts


def row(**changes):
    fields = {"source": "trajectories", "kind": "category", "name": "art", "count": 10}
    fields |= {"failures": 5, "rate": 0.5, "low": 0.2, "high": 0.8}
    fields |= {role: f"checkpoint/{identity}" for role, identity in AGENTS.items()}
    return FailureRow(**fields | changes)


def test_weights_follow_the_rates_within_their_bounds_and_keep_the_mean():
    settings = FailureQuotaSettings(at_least=0.5, at_most=2)
    counted = {"always": (100, 100), "never": (0, 100), "half": (50, 100), "rare": (1, 1)}
    weights = bounded_weights(counted, settings)
    assert all(0.5 <= weight <= 2 for weight in weights.values())
    assert sum(weights.values()) == pytest.approx(len(counted), abs=1e-4)
    assert weights["never"] < weights["half"] <= weights["rare"] < weights["always"]
    assert weights == bounded_weights(dict(reversed(counted.items())), settings)


def test_without_failures_every_cell_keeps_its_share():
    assert bounded_weights({"a": (0, 5), "b": (0, 9)}, FailureQuotaSettings()) == {"a": 1, "b": 1}
    assert bounded_weights({}, FailureQuotaSettings()) == {}


def test_only_failures_of_the_agents_in_use_count():
    others = row(planner="sketch/sketch-planner", name="science", failures=10)
    held_out = row(source="evaluation", kind="wording", name="a-held-out-template")
    quotas = quotas_of([row(), others, held_out], AGENTS, FailureQuotaSettings())
    assert set(quotas.categories) == {"art"} and not quotas.templates


def test_wilson_interval_of_published_values():
    # Newcombe (1998), table I: 81 of 263 and 0 of 20.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_a_stretch_has_train_prompts_alone_and_changes_none_before_it():
    plain, grown = bank(200), bank(200, TrainStretch(100, 200))
    assert grown[:100] == plain[:100]
    assert {prompt.split for prompt in grown[100:]} == {"train"}
    assert len({prompt.text for prompt in grown}) == 200
    assert {prompt.shard for prompt in grown[100:]} == {"sketchbook-0002", "sketchbook-0003"}


def test_a_later_stretch_leaves_an_earlier_one_as_it_is():
    first = TrainStretch(100, 150, Quotas(categories={"science": 2.0}, templates={"how-to": 0.5}))
    before = bank(150, first)
    after = bank(250, first, TrainStretch(150, 200, Quotas(categories={"art": 2.0})))
    assert after[:150] == before
    assert {prompt.split for prompt in after[200:]} > {"train"}, "the bank goes on as ever"


def test_categories_follow_their_weights():
    weights = {"science": 2.0, "art": 0.5}
    even, weighted = (
        Counter(prompt.category for prompt in bank(400, each)[100:])
        for each in (TrainStretch(100, 400), TrainStretch(100, 400, Quotas(categories=weights)))
    )
    assert weighted["science"] > 1.5 * even["science"] and weighted["art"] < 0.7 * even["art"]


def test_templates_follow_their_weights():
    even = Counter(prompt.template_id for prompt in bank(400, TrainStretch(100, 400))[100:])
    rare = dict.fromkeys((name for name, _ in even.most_common(15)), 0.1)
    weighted = bank(400, TrainStretch(100, 400, Quotas(templates=rare)))[100:]
    uses = sum(prompt.template_id in rare for prompt in weighted)
    assert uses < 0.6 * sum(even[name] for name in rare)


def test_a_round_of_an_earlier_version_is_one_line(home):
    old = {"number": 1, "pack": "toy", "first_shard": 0, "shards": ["toy-0000"]}
    old |= {"planner": "aa", "critic": "bb", "began_at": "2026-11-01T00:00:00Z"}
    with home.journal("rounds", "rounds") as journal:
        journal.append({"round": 1, "state": "open", "plan": old})
    with pytest.raises(FoundryError, match=r"not the form of this version: planner.*a new home"):
        recorded_rounds(home)
