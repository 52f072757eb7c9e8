"""A profile's loop as an environment: requests of its pack, its agents, its rewards."""

from collections.abc import Iterator
from contextlib import contextmanager

from assets.core.profile import Profile
from assets.evaluation.items import part_of
from assets.prompts.bank import open_bank
from assets.prompts.pack_loader import load_pack, world_of
from inference.backends.factory import Judge
from inference.calls.ask import ModelCalls
from inference.judge_grader import open_judge
from inference.roles import Grader
from inference.settings import Limits
from inference.sketch_world.grader import SketchGrader
from schemas import FoundryError
from schemas.prompts import PromptRow
from training.environment.episodes import (
    CriticRules,
    Environment,
    EpisodeKind,
    PlanEpisodes,
    StepEpisodes,
    TrajectoryEpisodes,
)
from training.rewards.planner import PlannerReward
from training.rewards.policy_critic import CriticQuestion
from training.rewards.reward import PlanRewardSettings
from training.settings import TrainingSettings
from warehouse import Home

_JOURNAL = "environment"


@contextmanager
def open_environment(
    profile: Profile, home: Home, kind: EpisodeKind, dev: bool = False
) -> Iterator[Environment]:
    """Episodes of a kind, whose calls are journaled in the home.

    Args:
        dev: of held-out requests that settings are chosen by, instead of those to train on.

    Raises:
        FoundryError: an agent lacks something, nothing grades what requests of the pack lead to, or
            another process serves the same.
    """
    training = profile.training or TrainingSettings()
    plan = training.planner_rl.reward if training.planner_rl else PlanRewardSettings()
    limits = (plan if kind == "plan" else training.critic_rl.reward).limits
    requests, name = _requests(profile, dev), f"{profile.name}-{kind}{'-dev' * dev}"
    with ModelCalls(home, _JOURNAL, kind, profile.build(home), limits) as calls:
        steps = StepEpisodes(home, calls, profile.loop, _critic_rules(profile, training))
        if kind == "step":
            yield Environment(name, steps, requests)
            return
        with _grader(profile, home, kind, limits) as grader:
            if kind == "trajectory":
                yield Environment(name, TrajectoryEpisodes(**vars(steps), grader=grader), requests)
                return
            reward = PlannerReward(calls, grader, plan, profile.loop)
            prompts = profile.curation.planner
            templates = prompts.text_prompt, prompts.interleaved_prompt
            yield Environment(name, PlanEpisodes(reward, templates), requests)


def _requests(profile: Profile, dev: bool) -> list[PromptRow]:
    """Those of the pack at the profile's largest size, without those that come with images."""
    count = max(profile.sizes.values()) * profile.bank.shard_size
    prompts = open_bank(load_pack(profile.pack), profile.bank, count).prompts
    chosen = [
        prompt
        for prompt in prompts
        if not prompt.input_images and not prompt.input_image_texts and _is_of(prompt, dev)
    ]
    if not chosen:
        raise FoundryError(f"pack {profile.pack} has no {'dev' if dev else 'train'} requests")
    return chosen


def _is_of(prompt: PromptRow, dev: bool) -> bool:
    if dev:
        return prompt.split == "heldout" and part_of("heldout", prompt.prompt_id) == "dev"
    return prompt.split == "train"


def _critic_rules(profile: Profile, training: TrainingSettings) -> CriticRules:
    critic = profile.curation.critic
    verdicts, reward = critic.verdicts, training.critic_rl.reward
    thresholds = verdicts.accept_at_least, verdicts.reject_at_most
    question = CriticQuestion(critic.agent_prompt, critic.canvas_size)
    return CriticRules(question, *thresholds, reward)


@contextmanager
def _grader(profile: Profile, home: Home, kind: EpisodeKind, limits: Limits) -> Iterator[Grader]:
    """As for the rewards of our own GRPO: the world's exact one, or a judge with its rubrics."""
    if judge := profile.evaluation.judge:
        asked = Judge(backend=judge.backend, model=judge.model)
        with open_judge(home, profile, asked, (_JOURNAL, f"{kind}-judge"), limits) as grader:
            yield grader
    elif world_of(profile.pack) == "sketch":
        yield SketchGrader()
    else:
        raise FoundryError(
            f"nothing grades what requests of pack {profile.pack} lead to: set `evaluation.judge`"
        )
