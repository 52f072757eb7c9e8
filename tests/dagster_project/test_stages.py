"""What `interleave run` does in which order, and what it may do at the same time."""

from assets.core.foundry import FoundryResource
from dagster_project.stages import ASSETS, select_nodes, stages_of
from tests.dagster_project.conftest import tiny_foundry


def stages(*names):
    return stages_of(select_nodes(names, FoundryResource(profile="sketch").settings))


def names(nodes):
    return [node.name for node in nodes]


def test_planner_and_critic_read_nothing_of_each_other():
    trained = stages()
    assert names(trained.base) == ["base_model"]
    assert sorted(map(names, trained.agents)) == [
        ["critic_sft_checkpoint", "critic_rl_checkpoint"],
        ["planner_sft_checkpoint"],
    ]
    assert names(trained.evaluation) == ["evaluation", "promotion"]


def test_rubrics_are_written_before_plans_are_rewarded_by_them(tmp_path):
    own = tiny_foundry(tmp_path, base="paper", training={"planner_rl": {"recipe": "lora"}})
    found = stages_of(select_nodes([], own.settings))
    assert names(found.base) == ["base_model", "rubrics"]
    assert ["planner_sft_checkpoint", "planner_rl_checkpoint"] in map(names, found.agents)
    assert "planner_rl" in names(found.aggregates)


def test_every_selected_node_is_in_one_stage():
    found = stages()
    listed = [*found.bank, *found.shards, *found.aggregates, *found.base, *found.evaluation]
    listed += [node for agent in found.agents for node in agent]
    assets = {asset.key.to_user_string() for asset in ASSETS}
    assert len(listed) == len(set(names(listed)))
    # Made when selected; where a profile has requests, a judge.
    benchmarks = {"benchmark_answers", "benchmark_judgements", "benchmark_results"}
    rounds = {"failures", "round_data", "rounds"}
    reinforced = {"planner_rl", "planner_rl_checkpoint"}
    without = {"ablation", "generations", "rubrics"} | benchmarks | rounds | reinforced
    assert set(names(listed)) == assets - without


def test_a_bank_is_expanded_before_anything_is_made_of_it(tmp_path):
    expansion = {"backend": "openai", "model": {"model": "m-1"}}
    foundry = tiny_foundry(tmp_path, prompts={"expansion": expansion})
    bank = names(stages_of(select_nodes([], foundry.settings)).bank)
    assert bank.index("vocabulary_expansion") < bank.index("vocabulary") < bank.index("prompts")


def test_what_is_not_selected_joins_nothing():
    assert [names(agent) for agent in stages("critic_rl_checkpoint", "evaluation").agents] == [
        ["critic_rl_checkpoint"]
    ]


def test_a_plus_selects_what_an_asset_is_made_from_too():
    selected = stages("+critic_sft", "evaluation")
    assert {"prompts", "templates"} <= set(names(selected.bank))
    assert {"plans", "trajectories", "scores"} <= set(names(selected.shards))
    assert names(selected.aggregates)[-2:] == ["steps", "critic_sft"]
    assert names(selected.evaluation) == ["evaluation"] and not selected.agents
