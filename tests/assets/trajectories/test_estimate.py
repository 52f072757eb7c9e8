"""Estimates of a run's calls, cost and disk space."""

import json
from datetime import UTC, datetime

import pytest
import yaml

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
    CheckpointRow,
    EvaluationRow,
    RolloutRow,
    RubricRow,
)


@pytest.fixture
def api(tmp_path, monkeypatch):
    """No key is needed, since nothing is called."""
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    return FoundryResource(profile="api", root=str(tmp_path / "home"))


def test_models_never_called_are_assumed_and_priced(api):
    expected = estimate(api, 2)
    by_role = {role.role: role for role in expected.roles}
    assert expected.trajectories == 200
    assert by_role["planner"].calls == 200
    assert by_role["critic"].calls == by_role["generator"].calls > 1000
    assert not any(role.measured for role in expected.roles)
    assert all(role.usd for role in expected.roles)
    assert expected.usd == pytest.approx(sum(role.usd for role in expected.roles))
    assert expected.disk_gb > 1


PROFILES = [load_profile(path.stem) for path in sorted(FOLDER.glob("*.yaml"))]


@pytest.mark.parametrize(
    ("profile", "size"),
    [(each.name, size) for each in PROFILES if each.budget for size in each.sizes],
)
def test_budgets_cover_estimates(tmp_path, monkeypatch, profile, size):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    foundry = FoundryResource(profile=profile, root=str(tmp_path / "home"), size=size)
    budget = foundry.settings.budget
    assert budget and 0 < estimate(foundry, foundry.shards).usd < budget.usd


def test_no_more_rows_are_trained_on_than_the_targets_say(tmp_path):
    foundry = FoundryResource(profile="paper", root=str(tmp_path), size="targets")
    expected = estimate(foundry, foundry.shards)
    assert [training.rows for training in expected.sft] == [80_000, 112_000]
    assert expected.grpo and expected.grpo.load.steps == 13_000 // 16


def test_model_without_a_price_has_no_cost(api, tmp_path):
    content = yaml.safe_load((FOLDER / "api.yaml").read_text())
    content |= {"prices": {}, "budget": None, "size_changes": {}}
    path = tmp_path / "custom.yaml"
    path.write_text(yaml.safe_dump(content))
    foundry = FoundryResource(profile=str(path), root=str(tmp_path / "home"))
    assert [role.usd for role in estimate(foundry, 1).roles] == [None] * 5


def test_sketch_world_costs_nothing_and_takes_little_space(tmp_path):
    expected = estimate(FoundryResource(profile="sketch", root=str(tmp_path)), 1)
    assert expected.usd == 0
    assert expected.disk_gb < 0.1


def test_every_member_of_an_ensemble_is_counted_and_priced(api, tmp_path):
    content = yaml.safe_load((FOLDER / "api.yaml").read_text())
    content["roles"]["scorer"] = "ensemble"
    content["ensemble"] = {"members": {"gemini": 2, "sketch": 1}}
    path = tmp_path / "both.yaml"
    path.write_text(yaml.safe_dump(content))
    expected = estimate(FoundryResource(profile=str(path), root=str(tmp_path / "home")), 1)
    scorers = [role for role in expected.roles if role.role == "scorer"]
    assert [role.model.split("/")[0] for role in scorers] == ["gemini", "gemini", "sketch"]
    assert len({role.calls for role in scorers}) == 1
    assert [role.usd > 0 for role in scorers] == [True, True, False]


def test_a_score_is_two_calls_unless_the_profile_says_one(api, tmp_path):
    def scorers(foundry):
        return [role for role in estimate(foundry, 1).roles if role.role == "scorer"]

    content = yaml.safe_load((FOLDER / "api.yaml").read_text())
    content["gemini"]["scorer"]["calls"] = "one"
    path = tmp_path / "cheap.yaml"
    path.write_text(yaml.safe_dump(content))
    (one,) = scorers(FoundryResource(profile=str(path), root=str(tmp_path / "home")))
    semantics, quality = scorers(api)
    assert one.calls == semantics.calls == quality.calls
    assert "-semantics-" in semantics.model and "-quality-" in quality.model
    assert quality.input_tokens < semantics.input_tokens, "one picture instead of two"
    assert one.usd < semantics.usd + quality.usd


def test_members_of_a_mix_draw_their_shares_of_images_and_rewards(tmp_path):
    """Benchmarks are drawn by the first one alone."""
    path = tmp_path / "mix.yaml"
    path.write_text(yaml.safe_dump({"base": "paper", "roles": {"generator": {"gemini": 3}}}))
    foundry = FoundryResource(profile=str(path), root=str(tmp_path / "home"))
    expected = estimate(foundry, 1)
    calls = {
        purpose: {
            role.model.split("/")[0]: role.calls
            for role in expected.roles
            if (role.role, role.purpose) == ("generator", purpose)
        }
        for purpose in ("", "rewards")
    }
    critic = next(role for role in expected.roles if role.role == "critic")
    assert calls[""] == {"images": critic.calls / 4, "gemini": critic.calls * 3 / 4}
    assert calls["rewards"]["gemini"] == 3 * calls["rewards"]["images"] > 0
    benchmark = estimate_benchmark(foundry, 10, ("generator",), None, 0)
    assert [role.model.split("/")[0] for role in benchmark] == ["images"]


def test_expansion_is_one_call_per_bank_until_there_are_proposals(api, tmp_path):
    expansion = {"backend": "gemini", "model": {"model": "gemini-2.5-pro"}}
    content = yaml.safe_load((FOLDER / "api.yaml").read_text())
    path = tmp_path / "custom.yaml"
    path.write_text(yaml.safe_dump(content | {"prompts": {"expansion": expansion}}))
    foundry = FoundryResource(profile=str(path), root=str(tmp_path / "home"))
    expander = estimate(foundry, 1).roles[0]
    assert (expander.role, expander.calls) == ("expander", 87 + 39)
    assert expander.usd > 0
    foundry.home.lake.write(VOCABULARY_PROPOSALS, [], "all")
    assert "expander" not in [role.role for role in estimate(foundry, 1).roles]


@pytest.mark.parametrize(
    ("profile", "gpus"),
    [("gpu", {"generator": 4}), ("released", {"planner": 2, "generator": 4, "critic": 2})],
)
def test_gpu_hours_follow_from_the_servers_gpus(tmp_path, monkeypatch, profile, gpus):
    """Nothing is downloaded for it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    expected = estimate(FoundryResource(profile=profile, root=str(tmp_path / "home")), 1)
    by_role = {role.role: role for role in expected.roles}
    for role, count in gpus.items():
        assert by_role[role].gpu_hours == pytest.approx(count * by_role[role].hours) != 0
    assert by_role["scorer"].gpu_hours == 0
    assert expected.gpu_hours == pytest.approx(sum(r.gpu_hours for r in expected.roles))


def test_gpus_of_several_servers_add_up(tmp_path):
    content = yaml.safe_load((FOLDER / "gpu.yaml").read_text())
    endpoints = [{"url": f"http://127.0.0.1:{n}/v1", "gpus": 4} for n in (1, 2)]
    content["images"] = {"endpoints": endpoints}
    path = tmp_path / "custom.yaml"
    path.write_text(yaml.safe_dump(content))
    expected = estimate(FoundryResource(profile=str(path), root=str(tmp_path / "home")), 1)
    generator = next(role for role in expected.roles if role.role == "generator")
    assert generator.gpu_hours == pytest.approx(8 * generator.hours)


def test_a_judge_writes_a_rubric_a_request_and_grades_plans_and_outcomes(api, tmp_path):
    """Two requests and one; of the two variants, one has no plan to grade."""
    model = {"model": "gemini-2.5-pro"}
    content = yaml.safe_load((FOLDER / "api.yaml").read_text()) | {
        "training": {},
        "evaluation": {
            "variants": ["generator_only", "full_rl"],
            "heldout": {"stories": 2, "verdicts": 4},
            "heldout_category": {"stories": 1, "verdicts": 1},
            "judge": {"backend": "gemini", "model": model, "rubrics": model},
        },
    }
    path = tmp_path / "judged.yaml"
    path.write_text(yaml.safe_dump(content))
    foundry = FoundryResource(profile=str(path), root=str(tmp_path / "home"))

    def by_role(shards):
        return {role.role: role for role in estimate(foundry, shards).roles if not role.purpose}

    first = by_role(1)
    assert (first["rubric_writer"].calls, first["judge"].calls) == (3, 3 * (1 + 2))
    for role in (first["rubric_writer"], first["judge"]):
        assert role.usd > 0 and role.input_tokens > 0 and role.output_tokens > 0
    without = estimate(api, 1)
    added = first["rubric_writer"].usd + first["judge"].usd
    added += sum(role.usd for role in estimate(foundry, 1).roles if role.purpose == "rewards")
    assert estimate(foundry, 1).usd == pytest.approx(without.usd + added)

    written = {"prompt_id": "p", "rubric_version": "1", "image_count": None, "writer": "w"}
    row = RubricRow(kind="image", number=1, criterion="Is there a cat?", **written)
    foundry.home.lake.write(RUBRICS, [row], "all")
    agents = {"planner": "none", "critic": "none"}
    value = EvaluationRow(
        benchmark="b", variant="full_rl", item_id="i", metric="m", value=1.0, **agents
    )
    foundry.home.lake.write(EVALUATIONS, [value], "full_rl")
    assert by_role(1)["rubric_writer"].calls == 2
    assert by_role(1)["judge"].calls == 9, "new trajectories, so all is evaluated again"
    assert by_role(0)["judge"].calls == 3, "the other variant"


@pytest.fixture
def trained(api, tmp_path):
    """Profile `api` with a training of the critic, of so many steps."""

    def make(**critic_rl) -> FoundryResource:
        content = yaml.safe_load((FOLDER / "api.yaml").read_text())
        content["training"] = {"critic_rl": critic_rl}
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"  # a profile is read once
        path.write_text(yaml.safe_dump(content))
        return FoundryResource(profile=str(path), root=str(tmp_path / "home"))

    return make


def rewards_of(expected):
    return {role.role: role for role in expected.roles if role.purpose == "rewards"}


def test_rewards_are_drawn_and_scored_for_half_of_the_answers_unless_measured(api, trained):
    expected = estimate(trained(batch=10, mini_batch=5, n=4, reward={"concurrency": 2}), 2)
    load, rewards = expected.grpo.load, rewards_of(expected)
    assert (load.steps, load.rollouts, load.drawn_measured) == (200 * 3 // 2 // 10, 40, 0)
    assert rewards["generator"].calls == rewards["scorer"].calls == load.draws == 30 * 40 / 2
    assert [role.purpose for role in expected.roles if role.role == "scorer"].count("rewards") == 2
    assert rewards["generator"].usd > 0 and rewards["scorer"].usd > 0
    drawing = rewards["generator"].hours * 3600 / load.steps
    assert drawing == pytest.approx(20 * 20 / 2), "20 drawings of 20 s, two at a time"
    assert expected.grpo.step_seconds == load.seconds + drawing
    assert estimate(api, 2).grpo is None and not rewards_of(estimate(api, 2))


def test_evaluations_while_training_count(trained):
    plain, dev = (
        estimate(trained(max_steps=5, save_every=2, dev_share=share), 1).grpo.load
        for share in (0.0, 0.2)
    )
    assert (plain.evaluated, dev.evaluated) == (0, 3 * 150 * 0.2)
    assert dev.draws == plain.draws + 45


def test_what_is_not_drawn_costs_nothing(trained):
    expected = estimate(trained(reward={"without": ["step"]}), 1)
    assert expected.grpo.load.draws == 0 == rewards_of(expected)["scorer"].usd


def test_every_draw_of_a_reward_is_counted(trained):
    once, twice = (
        estimate(trained(reward={"draws": draws}), 1).grpo.load.draws for draws in (1, 2)
    )
    assert twice == 2 * once > 0


def test_an_earlier_training_tells_time_and_share(trained):
    foundry = trained(max_steps=5, batch=8)
    row = {"run": "v1", "row_id": "r", "response": "", "status": "scored", "truth": True}
    row |= {"refined_prompt": "", "image": None, "format": 1.0, "accuracy": 0.0, "error": None}
    row |= {"step_reward": 0.0, "reward": 0.5, "seconds": 1.0}
    rollouts = [
        RolloutRow(rollout_id=str(n), step=1 + n % 2, verdict=n % 4 > 0, **row) for n in range(200)
    ]
    foundry.home.lake.write(ROLLOUTS, rollouts, "v1")
    checkpoint = CheckpointRow(
        name="critic_rl_checkpoint",
        version="v1",
        parent=None,
        dataset_version=None,
        config_hash="",
        metrics=json.dumps({"seconds": 50.0}),
        status="candidate",
        uri="",
        created_at=datetime.now(UTC),
    )
    foundry.home.lake.write(CHECKPOINTS, [checkpoint], "critic_rl_checkpoint-v1")
    expected = estimate(foundry, 1).grpo
    assert (expected.load.drawn_share, expected.load.drawn_measured) == (0.25, 200)
    assert expected.load.seconds_measured == "v1"
    assert expected.step_seconds == 50 * 64 / 100


def test_a_training_waits_for_what_endpoints_admit_and_not_for_what_it_may_start(trained):
    """128 scorings are allowed, and the profile's endpoint admits 16 calls at a time."""
    expected = estimate(trained(batch=16, n=8, reward={"concurrency": 128, "scorings": 128}), 2)
    waiting = (
        sum(role.hours for role in rewards_of_scorers(expected)) * 3600 / expected.grpo.load.steps
    )
    assert waiting == pytest.approx(64 * (12 + 10) / 16) == 88
    assert expected.grpo.step_seconds == pytest.approx(expected.grpo.load.seconds + 88)


def rewards_of_scorers(expected):
    return [role for role in expected.roles if role.purpose and role.role == "scorer"]


def test_images_on_gpus_of_ours_take_the_time_of_their_pipeline(tmp_path):
    changes = {"roles": {"generator": "images"}, "images": {"generator": {"size": "512x512"}}}

    def drawing(name, **changed):
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"base": "paper", **changes, **changed}))
        foundry = FoundryResource(profile=str(path), root=str(tmp_path / "home"))
        roles = estimate(foundry, 1).roles
        return next(role for role in roles if role.role == "generator" and not role.purpose)

    small = drawing("small")
    large = drawing("large", images={"generator": {"size": "1024x1024"}})
    hosted = drawing("hosted", roles={"generator": "gemini"})
    seconds = {n: r.hours * 3600 / r.calls for n, r in (("s", small), ("l", large))}
    assert 1.5 < 4 * seconds["l"] < 2.5, "four GPUs, each of which takes some two seconds"
    assert 3 < seconds["l"] / seconds["s"] < 4
    assert large.gpu_hours == pytest.approx(4 * large.hours)
    assert hosted.gpu_hours == 0


def test_an_estimate_says_what_the_budget_does_not_cover(api, tmp_path):
    few, many = estimate(api, 1), estimate(api, 30)
    assert few.budget == 200
    assert many.missing_usd == many.usd - 200 > 0
    spent = SpendingFile.of(api.home)
    with spent.transaction() as connection:
        connection.execute("UPDATE spent SET usd = 60")
    again = estimate(api, 30)
    assert (again.budget, again.missing_usd) == (140, pytest.approx(many.missing_usd + 60))
    assert estimate(api, 0).missing_usd == 0
    assert estimate(FoundryResource(profile="sketch", root=api.root), 1).budget is None


def test_supervised_trainings_are_estimated_and_measured(tmp_path):
    path = tmp_path / "own.yaml"
    training = {"planner_sft": {"epochs": 4, "batch": 8}, "critic_sft": {"max_steps": 5}}
    path.write_text(yaml.safe_dump({"base": "sketch", "training": training}))
    foundry = FoundryResource(profile=str(path), root=str(tmp_path / "home"), size="full")
    planner, critic = estimate(foundry, 1).sft
    assert (planner.rows, planner.steps) == (180, 90)
    assert critic.steps == 5 and not critic.measured
    assert planner.seconds == pytest.approx(180 * 4 * 0.07)
    row = CheckpointRow(
        name="planner_sft_checkpoint",
        version="v1",
        parent=None,
        dataset_version=None,
        config_hash="",
        metrics=json.dumps({"seconds": 50.0, "steps": 100}),
        status="candidate",
        uri="",
        created_at=datetime.now(UTC),
    )
    foundry.home.lake.write(CHECKPOINTS, [row], "planner_sft_checkpoint-v1")
    planner, _ = estimate(foundry, 1).sft
    assert (planner.measured, planner.seconds) == ("v1", 45.0)
    assert not estimate(FoundryResource(profile="api", root=foundry.root), 1).sft
