"""Jobs: refresh the data, retrain and evaluate the agents, improve them, answer requests."""

import dagster as dg

from assets.core.foundry import FoundryResource
from assets.generations.assets import GENERATION_SET
from schemas.training import BASE_MODEL, CRITIC, PLANNER, RL_PLANNER, SFT_CRITIC

from .improve import finished_rounds, improve
from .instance import PROMOTES_TAG

_EVALUATION = ("rubrics", "evaluation", "promotion")
_ONE_AT_A_TIME = {PROMOTES_TAG: "true"}

refresh_data = dg.define_asset_job(
    "refresh_data",
    selection=dg.AssetSelection.groups("taxonomy", "prompts", "trajectories"),
    description="Grow the bank by the chosen shard and make its trajectories; the training sets "
    "follow by themselves once every shard and its blocking checks are there.",
)
retrain_planner = dg.define_asset_job(
    "retrain_planner",
    selection=dg.AssetSelection.assets(BASE_MODEL, PLANNER, RL_PLANNER, *_EVALUATION),
    tags=_ONE_AT_A_TIME,
    description="Train the planner on its present samples (SFT, then GRPO where the profile has "
    "it), evaluate it, and put it in use unless it is worse. What has been trained on the same "
    "rows is not trained again.",
)
retrain_critic = dg.define_asset_job(
    "retrain_critic",
    selection=dg.AssetSelection.assets(BASE_MODEL, SFT_CRITIC, CRITIC, *_EVALUATION),
    tags=_ONE_AT_A_TIME,
    description="Train the critic on its present samples (SFT, then GRPO), evaluate it, and put it "
    "in use unless it is worse. What has been trained on the same rows is not trained again.",
)
evaluate = dg.define_asset_job(
    "evaluate",
    selection=dg.AssetSelection.assets(*_EVALUATION),
    tags=_ONE_AT_A_TIME,
    description="Evaluate the newest checkpoints on held-out requests and put them in use unless "
    "they are worse.",
)
make_generations = dg.define_asset_job(
    "make_generations",
    selection=dg.AssetSelection.assets(GENERATION_SET.name),
    description="Answer a batch of requests. What is finished is not generated again.",
)


@dg.op(description="One round of `interleave improve`: the next one, or the one that is open.")
def next_round(context: dg.OpExecutionContext, foundry: FoundryResource) -> None:
    rounds = len(finished_rounds(foundry)) + 1
    improve(foundry, context.instance, rounds, lambda line: context.log.info(str(line)))


@dg.job(
    tags=_ONE_AT_A_TIME,
    description="A round: new prompts, trajectories by the promoted agents, training on them, "
    "evaluation, promotion. Does nothing when the last round did not help.",
)
def improve_agents() -> None:
    next_round()
