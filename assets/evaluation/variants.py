"""The variants of the system that are compared (paper, table 5)."""

from dataclasses import dataclass, replace

from inference.backends.checkpoint.manifest import Answers
from inference.backends.factory import ChatBackend
from schemas.training import BASE_MODEL, CRITIC, PLANNER, RL_PLANNER, SFT_CRITIC

# Names of checkpoints that only the ablation has.
NO_STEP, NO_ACCURACY = "ablation_rl_no_step", "ablation_rl_no_accuracy"
RL_TRAJECTORY, RL_EPISODE = "ablation_rl_trajectory", "ablation_rl_episode"
RL_ONE_AGENT = "ablation_rl_one_agent"
ONE_AGENT, UNFILTERED = "ablation_one_agent", "ablation_unfiltered"
SFT_ON_RL_LABELS = "ablation_sft_on_rl_labels"
# Hosted models in place of checkpoints: the section of the profile that has them, and their name.
GEMINI, GPT = "gemini/gemini-2.5-pro", "openai/gpt-4.1"
# Variants that promotion reads: of the newest checkpoints, supervised and reinforced; of one newest
# and one promoted; of those in use; and (best_1 ...) of the best ever promoted.
NEWEST = {
    (RL_PLANNER, CRITIC): "both_rl",
    (RL_PLANNER, SFT_CRITIC): "planner_rl",
    (PLANNER, CRITIC): "full_rl",
    (PLANNER, SFT_CRITIC): "full_sft",
}
NEW_PLANNER, NEW_CRITIC = "new_planner", "new_critic"
PROMOTED, BEST = "promoted", "best_"
SEED = "-seed-"  # in names of partitions, between variant and training seed


@dataclass(frozen=True)
class Variant:
    """Planner and critic of a system, as references of agents (see `agents.py`), or an oracle.

    Args:
        answers: of the agents; `sampled` are the critic's alone, which GRPO trains.
        training_seed: of the ablation (see `EvaluationRow`).
        paper: row of the paper's table 5; None: not in it.
    """

    name: str
    planner: str | None  # None: the request's own text is the only prompt
    critic: str | None  # None: every first image is accepted
    t_max: int | None = None  # attempts per step; None: `evaluation.t_max`
    answers: Answers = "usual"
    training_seed: int | None = None
    paper: str | None = None

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
        return backend, model

    def with_t_max(self, default: int) -> "Variant":
        """This variant with `t_max` set: 1 without a critic."""
        return replace(self, t_max=1 if self.critic is None else self.t_max or default)


# Measured where they are named: trajectories take long, and their credit gained no more here.
ON_REQUEST = ("rl_trajectory", "rl_episode", "rl_one_agent")
_BASE, _SFT, _RL = "+ Qwen3-VL-8B, zero-shot", "+ Full SFT", "+ Full RL"
# `base` and `untrained` stand for one row of the paper: there, an untrained model answers in the
# form. So do a variant and its `_sampled` one: how the paper's agents decode is not said. The
# control `sft_on_rl_labels`, reinforced planners, credit by trajectories and an agent of both roles
# that is reinforced are not the paper's.
_VARIANTS = (
    Variant("generator_only", None, None, paper="FLUX.2-klein-9B"),
    Variant("oracle_gemini", GEMINI, GEMINI, paper="+ Gemini 2.5 Pro, oracle"),
    Variant("oracle_gpt", GPT, GPT, paper="+ GPT-4.1, oracle"),
    Variant("base", BASE_MODEL, BASE_MODEL, paper=_BASE),
    Variant("untrained", BASE_MODEL, BASE_MODEL, answers="constrained", paper=_BASE),
    Variant("planner_sft", PLANNER, None, paper="+ Planner SFT"),
    Variant("full_sft", PLANNER, SFT_CRITIC, paper=_SFT),
    Variant("sft_on_rl_labels", PLANNER, SFT_ON_RL_LABELS),
    Variant("rl_no_step", PLANNER, NO_STEP, paper="+ RL without step reward"),
    Variant("rl_no_accuracy", PLANNER, NO_ACCURACY, paper="+ RL without accuracy reward"),
    Variant("rl_trajectory", PLANNER, RL_TRAJECTORY),
    Variant("rl_episode", PLANNER, RL_EPISODE),
    Variant("full_rl", PLANNER, CRITIC, paper=_RL),
    Variant("planner_rl", RL_PLANNER, SFT_CRITIC),
    Variant("both_rl", RL_PLANNER, CRITIC),
    Variant("full_sft_sampled", PLANNER, SFT_CRITIC, answers="sampled", paper=_SFT),
    Variant("full_rl_sampled", PLANNER, CRITIC, answers="sampled", paper=_RL),
    Variant("one_agent", ONE_AGENT, ONE_AGENT, paper="One agent"),
    Variant("rl_one_agent", RL_ONE_AGENT, RL_ONE_AGENT),
    Variant("unfiltered", PLANNER, UNFILTERED, paper="Unfiltered data"),
    Variant("t_max_1", PLANNER, CRITIC, 1, paper="T_max = 1"),
    Variant("t_max_3", PLANNER, CRITIC, 3, paper="T_max = 3"),
    Variant("t_max_5", PLANNER, CRITIC, 5, paper="T_max = 5"),
)
VARIANTS = {variant.name: variant for variant in _VARIANTS}
