"""The variants of the system that are compared (paper, table 5)."""

from dataclasses import dataclass, replace
from typing import cast

from inference.backends.checkpoint.manifest import Answers
from inference.backends.factory import ChatBackend

from .settings import VariantName

# Names of checkpoints.
BASE, PLANNER = "base_model", "planner_sft_checkpoint"
CRITIC_SFT, CRITIC_RL = "critic_sft_checkpoint", "critic_rl_checkpoint"
NO_STEP, NO_ACCURACY = "ablation_rl_no_step", "ablation_rl_no_accuracy"
ONE_AGENT, UNFILTERED = "ablation_one_agent", "ablation_unfiltered"
SFT_ON_RL_LABELS = "ablation_sft_on_rl_labels"
# Hosted models in place of checkpoints: the section of the profile that has them, and their name.
GEMINI, GPT = "gemini/gemini-2.5-pro", "openai/gpt-4.1"
# Variants that promotion reads (`systems.py`): of the newest checkpoints, of one newest and one
# promoted, of those in use, and (best_1 ...) of the best ever promoted.
CANDIDATE, NEW_PLANNER, NEW_CRITIC = "full_rl", "new_planner", "new_critic"
PROMOTED, BEST = "promoted", "best_"
SEED = "-seed-"  # in names of partitions, between variant and training seed


@dataclass(frozen=True)
class Variant:
    """Planner and critic of a system, as references of agents (see `agents.py`), or an oracle.

    Args:
        answers: of the agents; `sampled` are the critic's alone, which GRPO trains.
        training_seed: of the ablation (see `EvaluationRow`).
    """

    name: str
    planner: str | None  # None: the request's own text is the only prompt
    critic: str | None  # None: every first image is accepted
    t_max: int | None = None  # attempts per step; None: `evaluation.t_max`
    answers: Answers = "usual"
    training_seed: int | None = None

    @property
    def partition(self) -> str:
        """Of the table `evaluations`."""
        seed = self.training_seed
        return self.name if seed is None else f"{self.name}{SEED}{seed}"

    @property
    def agents(self) -> list[str]:
        """References of the checkpoints that it has."""
        return [each for each in (self.planner, self.critic) if each and not self.provider]

    @property
    def provider(self) -> tuple[ChatBackend, str] | None:
        """Section of the profile, and model, of an oracle: a hosted planner and critic."""
        if self.planner not in (GEMINI, GPT):
            return None
        backend, model = self.planner.split("/")
        return cast(ChatBackend, backend), model

    def with_t_max(self, default: int) -> "Variant":
        """This variant with `t_max` set: 1 without a critic."""
        return replace(self, t_max=1 if self.critic is None else self.t_max or default)


VARIANTS: dict[VariantName, Variant] = {
    "generator_only": Variant("generator_only", None, None),
    "oracle_gemini": Variant("oracle_gemini", GEMINI, GEMINI),
    "oracle_gpt": Variant("oracle_gpt", GPT, GPT),
    "base": Variant("base", BASE, BASE),
    "untrained": Variant("untrained", BASE, BASE, answers="constrained"),
    "planner_sft": Variant("planner_sft", PLANNER, None),
    "full_sft": Variant("full_sft", PLANNER, CRITIC_SFT),
    "sft_on_rl_labels": Variant("sft_on_rl_labels", PLANNER, SFT_ON_RL_LABELS),
    "rl_no_step": Variant("rl_no_step", PLANNER, NO_STEP),
    "rl_no_accuracy": Variant("rl_no_accuracy", PLANNER, NO_ACCURACY),
    "full_rl": Variant("full_rl", PLANNER, CRITIC_RL),
    "full_sft_sampled": Variant("full_sft_sampled", PLANNER, CRITIC_SFT, answers="sampled"),
    "full_rl_sampled": Variant("full_rl_sampled", PLANNER, CRITIC_RL, answers="sampled"),
    "one_agent": Variant("one_agent", ONE_AGENT, ONE_AGENT),
    "unfiltered": Variant("unfiltered", PLANNER, UNFILTERED),
    "t_max_1": Variant("t_max_1", PLANNER, CRITIC_RL, 1),
    "t_max_3": Variant("t_max_3", PLANNER, CRITIC_RL, 3),
    "t_max_5": Variant("t_max_5", PLANNER, CRITIC_RL, 5),
}
