"""The variants of the system that are compared (paper, table 5)."""

from dataclasses import dataclass, replace

from .settings import VariantName

# Names of checkpoints, of which the newest version is meant.
BASE, PLANNER, CRITIC_SFT, CRITIC_RL = (
    "base_model",
    "planner_sft_checkpoint",
    "critic_sft_checkpoint",
    "critic_rl_checkpoint",
)
NO_STEP, NO_ACCURACY, ONE_AGENT, UNFILTERED = (
    "ablation_rl_no_step",
    "ablation_rl_no_accuracy",
    "ablation_one_agent",
    "ablation_unfiltered",
)
# The variant that is in use, whatever it is: what new checkpoints are compared with.
PROMOTED = "promoted"


@dataclass(frozen=True)
class Variant:
    """Who plans, who judges, and how often a step may be tried.

    Attributes:
        planner: reference of an agent (see `players.py`); None: the request's own text goes to
            the generator, once.
        critic: likewise; None: every first picture is accepted.
        t_max: attempts per step; None: as the evaluation's settings say.
    """

    name: str
    planner: str | None
    critic: str | None
    t_max: int | None = None

    def with_t_max(self, usual: int) -> "Variant":
        """Itself with a definite number of attempts: one where nobody judges."""
        return replace(self, t_max=1 if self.critic is None else self.t_max or usual)


VARIANTS: dict[VariantName, Variant] = {
    "generator_only": Variant("generator_only", None, None),
    "base": Variant("base", BASE, BASE),
    "planner_sft": Variant("planner_sft", PLANNER, None),
    "full_sft": Variant("full_sft", PLANNER, CRITIC_SFT),
    "rl_no_step": Variant("rl_no_step", PLANNER, NO_STEP),
    "rl_no_accuracy": Variant("rl_no_accuracy", PLANNER, NO_ACCURACY),
    "full_rl": Variant("full_rl", PLANNER, CRITIC_RL),
    "one_agent": Variant("one_agent", ONE_AGENT, ONE_AGENT),
    "unfiltered": Variant("unfiltered", PLANNER, UNFILTERED),
    "t_max_1": Variant("t_max_1", PLANNER, CRITIC_RL, 1),
    "t_max_3": Variant("t_max_3", PLANNER, CRITIC_RL, 3),
    "t_max_5": Variant("t_max_5", PLANNER, CRITIC_RL, 5),
}
