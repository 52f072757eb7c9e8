"""Settings of rounds, in which the agents are trained on what they made themselves."""

from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.yaml_config import ConfigModel

Share = Annotated[float, Field(ge=0, le=1)]


class SafeguardSettings(ConfigModel):
    """Limits of a round's data; beyond one of them, nothing is trained on it."""

    duplicates: Share = Field(0.2, description="Share of new rows that occurred before, at most")
    diversity: Share = Field(
        0.7,
        description="Diversity of plans, refined prompts and images, at least so much of the first "
        "round's (of the first round: of the trajectories before it)",
    )
    accept_rate: tuple[Share, Share] = Field(
        (0.02, 0.98), description="Share of attempts that the critic accepts: least and most"
    )
    length_factor: float = Field(
        2.0,
        gt=1,
        description="Plans and refined prompts are at most so many times longer or shorter than "
        "the first round's",
    )


class RoundsSettings(ConfigModel):
    """`interleave improve`: new prompts, trajectories by the promoted agents, training on them."""

    shards: int = Field(2, ge=1, description="Shards of new train prompts in a round")
    in_flight: int = Field(96, ge=1, description="Trajectories of a shard that run concurrently")
    quarantine_share: Share = Field(
        0.5,
        description="A shard fails when a larger share of its prompts is quarantined: a plan that "
        "cannot be read is a mistake of the agent, not of the shard",
    )
    failure_weight: float = Field(
        2.0,
        ge=0,
        description="How often a row of what an agent got wrong occurs: a wrong verdict in the "
        "critic's RL set, a plan that `plan_retries` found in the planner's set",
    )
    plan_retries: int = Field(
        0,
        ge=0,
        description="How often the planner is asked again, at most, where its plan was wrong; its "
        "answers are sampled until one is right. Only for packs with an exact grader",
    )
    replay: float = Field(
        1.0, ge=0, description="Older rows for each new one, in every set: nothing is forgotten"
    )
    training: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="What is set otherwise in trainings of rounds: keys of section `training`, "
        "such as `critic_rl: {max_steps: 10}`",
    )
    continue_if: Literal["mean", "interval"] = Field(
        "mean",
        description="What of the paired difference in final success on development items must be "
        "above zero for another round: its mean, or the lower end of its interval",
    )
    safeguards: SafeguardSettings = Field(
        SafeguardSettings(), description="Checks of a round's data"
    )
