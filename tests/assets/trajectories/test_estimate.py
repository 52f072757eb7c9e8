"""Estimates of a run's calls, cost and disk space."""

import json
from pathlib import Path

import pytest

from assets.core.foundry import FoundryResource
from assets.core.profile import FOLDER, load_profile
from assets.trajectories.estimate import estimate, estimate_benchmark
from inference.backends.providers.budget import SpendingFile
from schemas.prompts import VOCABULARY_PROPOSALS
from schemas.training import (
    CHECKPOINTS,
    EVALUATIONS,
    ROLLOUTS,
    RUBRICS,
    EvaluationRow,
    RolloutRow,
    RubricRow,
)
from tests.helpers.checkpoint_rows import checkpoint_row

PROFILES = [load_profile(path.stem) for path in sorted(FOLDER.glob("*.yaml"))]
GEMINI = {"backend": "gemini", "model": {"model": "gemini-2.5-pro"}}
GEMINI_ROLES = dict.fromkeys(("planner", "generator", "critic", "scorer"), "gemini")
IMAGES_ROLES = GEMINI_ROLES | {"generator": "images"}
JUDGE = {"judge": GEMINI | {"rubrics": GEMINI["model"]}}
HELD_OUT = {
    "heldout": {"stories": 2, "verdicts": 4},
    "heldout_category": {"stories": 1, "verdicts": 1},
}


@pytest.fixture
def foundry(tmp_path, monkeypatch):
    """Makes a foundry with sections of its own; nothing is called or downloaded for it."""
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def make(profile: str = "api", size: str = "", **sections: object) -> FoundryResource:
        root, changed = str(tmp_path / "home"), json.dumps(sections) if sections else ""
        return FoundryResource(profile=profile, root=root, size=size, sections=changed)

    return make


def by_role(expected, purpose=""):
    return {role.role: role for role in expected.roles if role.purpose == purpose}


def roles_of(expected, name, purpose=""):
    return [role for role in expected.roles if (role.role, role.purpose) == (name, purpose)]


def critic_rl(expected):
    """The critic's GRPO, which is the only one."""
    (load,) = expected.grpo
    assert load.name == "critic_rl"
    return load


def store_checkpoint(foundry, name, **metrics):
    row = checkpoint_row(name, "v1", Path())
    row = row.model_copy(update={"metrics": json.dumps(metrics)})
    foundry.home.lake.write(CHECKPOINTS, [row], f"{name}-v1")


def test_models_never_called_are_assumed_and_priced(foundry):
    expected = estimate(foundry(), 2)
    roles = by_role(expected)
    assert expected.trajectories == roles["planner"].calls == 200
    assert roles["critic"].calls == roles["generator"].calls > 1000
    assert not any(role.measured for role in expected.roles)
    assert all(role.usd for role in expected.roles)
    assert expected.usd == pytest.approx(sum(role.usd for role in expected.roles))
    assert expected.disk_gb > 1
    unpriced = estimate(foundry(prices={}, budget=None, size_changes={}), 1)
    assert [role.usd for role in unpriced.roles] == [None] * 5


def test_budgets_cover_estimates(foundry):
    for profile in (each for each in PROFILES if each.budget):
        for size in profile.sizes:
            sized = foundry(profile.name, size)
            budget = sized.settings.budget
            assert budget and 0 < estimate(sized, sized.shards).usd < budget.usd, (profile, size)


def test_no_more_rows_are_trained_on_than_the_targets_say(foundry):
    paper = foundry("paper", "targets")
    expected = estimate(paper, paper.shards)
    assert [training.rows for training in expected.sft] == [80_000, 112_000]
    assert critic_rl(expected).steps == 13_000 // 16


def test_every_member_of_an_ensemble_is_counted_and_priced(foundry):
    """A score is two calls unless the profile says one."""
    roles, members = GEMINI_ROLES | {"scorer": "ensemble"}, {"gemini": 2, "sketch": 1}
    scorers = roles_of(estimate(foundry(roles=roles, ensemble={"members": members}), 1), "scorer")
    assert [role.model.split("/")[0] for role in scorers] == ["gemini", "gemini", "sketch"]
    assert len({role.calls for role in scorers}) == 1
    assert [role.usd > 0 for role in scorers] == [True, True, False]

    gemini = foundry().settings.model_dump()["gemini"]
    cheap = gemini | {"scorer": gemini["scorer"] | {"calls": "one"}}
    (one,) = roles_of(estimate(foundry(gemini=cheap), 1), "scorer")
    semantics, quality = roles_of(estimate(foundry(), 1), "scorer")
    assert one.calls == semantics.calls == quality.calls
    assert "-semantics-" in semantics.model and "-quality-" in quality.model
    assert quality.input_tokens < semantics.input_tokens, "one picture instead of two"
    assert one.usd < semantics.usd + quality.usd


def test_members_of_a_mix_draw_their_shares_of_images_and_rewards(foundry):
    """Benchmarks are drawn by the first one alone."""
    paper = foundry("paper", roles=GEMINI_ROLES | {"generator": {"images": 1, "gemini": 3}})
    expected = estimate(paper, 1)
    drawn, rewards = (
        {role.model.split("/")[0]: role.calls for role in roles_of(expected, "generator", purpose)}
        for purpose in ("", "rewards")
    )
    calls = by_role(expected)["critic"].calls
    assert drawn == {"images": calls / 4, "gemini": calls * 3 / 4}
    assert rewards["gemini"] == 3 * rewards["images"] > 0
    benchmark = estimate_benchmark(paper, 10, ("generator",), None, 0)
    assert [role.model.split("/")[0] for role in benchmark] == ["images"]


def test_expansion_is_one_call_per_bank_until_there_are_proposals(foundry):
    api = foundry(prompts={"expansion": GEMINI})
    expander = estimate(api, 1).roles[0]
    assert (expander.role, expander.calls) == ("expander", 87 + 39)
    assert expander.usd > 0
    api.home.lake.write(VOCABULARY_PROPOSALS, [], "all")
    assert "expander" not in by_role(estimate(api, 1))


def test_gpu_hours_follow_from_the_servers_gpus(foundry):
    for profile, gpus in (
        ("gpu", {"generator": 4}),
        ("released", {"planner": 2, "generator": 4, "critic": 2}),
    ):
        expected = estimate(foundry(profile), 1)
        roles = by_role(expected)
        for role, count in gpus.items():
            assert roles[role].gpu_hours == pytest.approx(count * roles[role].hours) != 0
        assert roles["scorer"].gpu_hours == 0
        assert expected.gpu_hours == pytest.approx(sum(r.gpu_hours for r in expected.roles))
    endpoints = [{"url": f"http://127.0.0.1:{n}/v1", "gpus": 4} for n in (1, 2)]
    images = foundry("gpu").settings.model_dump()["images"] | {"endpoints": endpoints}
    two = by_role(estimate(foundry("gpu", images=images), 1))["generator"]
    assert two.gpu_hours == pytest.approx(8 * two.hours)


def test_a_judge_writes_a_rubric_a_request_and_grades_plans_and_outcomes(foundry):
    """Two requests and one; of the two variants, one has no plan to grade."""
    judged = foundry(
        training={}, evaluation={"variants": ["generator_only", "full_rl"], **HELD_OUT, **JUDGE}
    )
    expected = estimate(judged, 1)
    first = by_role(expected)
    assert (first["rubric_writer"].calls, first["judge"].calls) == (3, 3 * (1 + 2))
    for role in (first["rubric_writer"], first["judge"]):
        assert role.usd > 0 and role.input_tokens > 0 and role.output_tokens > 0
    added = first["rubric_writer"].usd + first["judge"].usd
    added += sum(role.usd for role in expected.roles if role.purpose == "rewards")
    assert expected.usd == pytest.approx(estimate(foundry(), 1).usd + added)

    written = {"prompt_id": "p", "rubric_version": "1", "image_count": None, "writer": "w"}
    row = RubricRow(kind="image", number=1, criterion="Is there a cat?", **written)
    judged.home.lake.write(RUBRICS, [row], "all")
    agents = {"planner": "none", "critic": "none"}
    value = EvaluationRow(
        benchmark="b", variant="full_rl", item_id="i", metric="m", value=1.0, **agents
    )
    judged.home.lake.write(EVALUATIONS, [value], "full_rl")
    again = by_role(estimate(judged, 1))
    assert again["rubric_writer"].calls == 2
    assert again["judge"].calls == 9, "new trajectories, so all is evaluated again"
    assert by_role(estimate(judged, 0))["judge"].calls == 3, "the other variant"


@pytest.fixture
def trained(foundry):
    """Profile `api` with a training of the critic."""
    return lambda **critic_rl: foundry(training={"critic_rl": critic_rl})


def test_rewards_are_drawn_and_scored_for_half_of_the_answers_unless_measured(foundry, trained):
    settings = {"batch": 10, "mini_batch": 5, "n": 4}
    expected = estimate(trained(**settings, reward={"concurrency": 2}), 2)
    load, rewards = critic_rl(expected), by_role(expected, "rewards")
    assert (load.steps, load.rollouts, load.drawn_measured) == (200 * 3 // 2 // 10, 40, 0)
    assert rewards["generator"].calls == rewards["scorer"].calls == load.draws == 30 * 40 / 2
    assert len(roles_of(expected, "scorer", "rewards")) == 2
    assert rewards["generator"].usd > 0 and rewards["scorer"].usd > 0
    drawing = rewards["generator"].hours * 3600 / load.steps
    assert drawing == pytest.approx(20 * 20 / 2), "20 drawings of 20 s, two at a time"
    faster = critic_rl(estimate(trained(**settings, reward={"concurrency": 4}), 2))
    assert load.seconds - faster.seconds == pytest.approx(drawing / 2)
    assert not estimate(foundry(), 2).grpo and not by_role(estimate(foundry(), 2), "rewards")


def test_plans_of_a_reinforced_planner_are_judged_and_their_outcomes_drawn(foundry):
    planner = {"batch": 10, "mini_batch": 10, "n": 4, "max_steps": 7}

    def expected(of):
        training = {"critic_rl": {}, "planner_rl": planner | {"reward": {"of": of}}}
        return estimate(foundry(training=training, evaluation=JUDGE | HELD_OUT), 1)

    plans, outcomes = expected("plan"), expected("outcome")
    _, load = plans.grpo
    assert (load.name, load.steps, load.answers, load.draws) == ("planner_rl", 7, 280, 0)
    assert by_role(plans, "rewards")["judge"].calls == 280
    assert by_role(plans)["rubric_writer"].calls == 3 + 5000, "requests of the set, once each"
    assert "critic" not in by_role(plans, "rewards")
    drawn = [role.calls for role in roles_of(outcomes, "generator", "rewards")]
    assert drawn[1] == outcomes.grpo[1].draws == by_role(outcomes, "rewards")["critic"].calls > 280


def test_trajectories_of_a_reinforced_critic_are_drawn_and_judged(foundry):
    def expected(**reward):
        training = {"critic_rl": {"max_steps": 5, "reward": reward}}
        return estimate(foundry(training=training, evaluation=JUDGE | HELD_OUT), 1)

    of_steps, of_trajectories = expected(), expected(of="trajectory", draws=2)
    load = critic_rl(of_trajectories)
    assert load.draws > critic_rl(of_steps).draws and load.drawn_share == 1
    rewards = by_role(of_trajectories, "rewards")
    assert rewards["critic"].calls == rewards["generator"].calls == load.draws
    assert rewards["judge"].calls == load.answers and "scorer" not in rewards
    assert "judge" not in by_role(of_steps, "rewards")
    of_episodes = expected(of="episode")
    episodes, load = by_role(of_episodes, "rewards"), critic_rl(of_episodes)
    assert set(episodes) == {"generator", "judge"}, "the policy judges later pictures"
    assert load.draws_each > 1, "and an answer before each of them, and after the last"
    assert load.seconds > (1 + load.draws_each) * critic_rl(of_steps).seconds


def test_what_is_evaluated_and_drawn_again_counts_and_what_is_not_drawn_costs_nothing(trained):
    plain, dev = (
        critic_rl(estimate(trained(max_steps=5, save_every=2, dev_share=share), 1))
        for share in (0.0, 0.2)
    )
    assert (plain.evaluated, dev.evaluated) == (0, 3 * 150 * 0.2)
    assert dev.draws == plain.draws + 45
    once, twice = (critic_rl(estimate(trained(reward={"draws": n}), 1)).draws for n in (1, 2))
    assert twice == 2 * once > 0
    undrawn = estimate(trained(reward={"without": ["step"]}), 1)
    assert critic_rl(undrawn).draws == 0 == by_role(undrawn, "rewards")["scorer"].usd


def test_time_and_share_are_those_of_an_earlier_training(trained):
    api = trained(max_steps=5, batch=8)
    row = {"run": "v1", "row_id": "r", "response": "", "status": "scored", "truth": True}
    row |= {"refined_prompt": "", "image": None, "format": 1.0, "accuracy": 0.0, "error": None}
    row |= {"step_reward": 0.0, "reward": 0.5, "seconds": 1.0}
    rollouts = [
        RolloutRow(rollout_id=str(n), step=1 + n % 2, verdict=n % 4 > 0, **row) for n in range(200)
    ]
    api.home.lake.write(ROLLOUTS, rollouts, "v1")
    store_checkpoint(api, "critic_rl_checkpoint", seconds=50.0)
    expected = critic_rl(estimate(api, 1))
    assert (expected.drawn_share, expected.drawn_measured) == (0.25, 200)
    assert expected.seconds_measured == "v1"
    assert expected.seconds == 50 * 64 / 100


def test_a_training_waits_for_what_endpoints_admit_and_not_for_what_it_may_start(trained):
    """128 scorings are allowed, and the profile's endpoint admits 16 calls at a time."""
    expected = estimate(trained(batch=16, n=8, reward={"concurrency": 128, "scorings": 128}), 2)
    hours = sum(role.hours for role in roles_of(expected, "scorer", "rewards"))
    waiting = hours * 3600 / critic_rl(expected).steps
    assert waiting == pytest.approx(64 * (12 + 10) / 16) == 88
    undrawn = estimate(trained(batch=16, n=8, reward={"without": ["step"]}), 2)
    assert critic_rl(expected).seconds == pytest.approx(critic_rl(undrawn).seconds + 88)


def test_images_on_gpus_of_ours_take_the_time_of_their_pipeline(foundry):
    images = foundry("paper").settings.model_dump()["images"]

    def drawing(size, roles=IMAGES_ROLES):
        sized = images | {"generator": images["generator"] | {"size": size}}
        return by_role(estimate(foundry("paper", roles=roles, images=sized), 1))["generator"]

    small, large, hosted = drawing("512x512"), drawing("1024x1024"), drawing(None, GEMINI_ROLES)
    small_seconds, large_seconds = (each.hours * 3600 / each.calls for each in (small, large))
    assert 1.5 < 4 * large_seconds < 2.5, "four GPUs, each of which takes some two seconds"
    assert 3 < large_seconds / small_seconds < 4
    assert large.gpu_hours == pytest.approx(4 * large.hours)
    assert hosted.gpu_hours == 0


def test_an_estimate_says_what_the_budget_does_not_cover(foundry):
    few, many = estimate(foundry(), 1), estimate(foundry(), 30)
    assert few.budget == 200
    assert many.missing_usd == many.usd - 200 > 0
    with SpendingFile.of(foundry().home).transaction() as connection:
        connection.execute("UPDATE spent SET usd = 60")
    again = estimate(foundry(), 30)
    assert (again.budget, again.missing_usd) == (140, pytest.approx(many.missing_usd + 60))
    assert estimate(foundry(), 0).missing_usd == 0
    sketch = estimate(foundry("sketch"), 1)
    assert sketch.budget is None and sketch.usd == 0 and sketch.disk_gb < 0.1


def test_supervised_trainings_are_estimated_and_measured(foundry):
    training = {"planner_sft": {"epochs": 4, "batch": 8}, "critic_sft": {"max_steps": 5}}
    sketch = foundry("sketch", "full", training=training)
    planner, critic = estimate(sketch, 1).sft
    assert (planner.rows, planner.steps) == (180, 90)
    assert critic.steps == 5 and not critic.measured
    assert planner.seconds == pytest.approx(180 * 4 * 0.07)
    store_checkpoint(sketch, "planner_sft_checkpoint", seconds=50.0, steps=100)
    planner, _ = estimate(sketch, 1).sft
    assert (planner.measured, planner.seconds) == ("v1", 45.0)
    assert not estimate(foundry(), 1).sft
