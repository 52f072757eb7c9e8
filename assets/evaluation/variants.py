"""The variants of the system that are compared (paper, table 5), and those that may serve.

Promotion decides about systems, a planner and a critic that serve together. Both can be promoted
alone, so every choice between newest and promoted ones is a candidate. Candidates are compared with
the system in use, and with the best ever promoted: else many small losses, each within the margin,
would add up.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from inference.backends.checkpoint.manifest import Answers
from inference.backends.factory import ChatBackend
from schemas.training import BASE_MODEL, CRITIC, PLANNER, SFT_CRITIC
from training.registry import CheckpointRegistry

from ..checkpoints import recipes
from ..core.foundry import FoundryResource

# Names of checkpoints that only the ablation has.
NO_STEP, NO_ACCURACY = "ablation_rl_no_step", "ablation_rl_no_accuracy"
ONE_AGENT, UNFILTERED = "ablation_one_agent", "ablation_unfiltered"
SFT_ON_RL_LABELS = "ablation_sft_on_rl_labels"
# Hosted models in place of checkpoints: the section of the profile that has them, and their name.
GEMINI, GPT = "gemini/gemini-2.5-pro", "openai/gpt-4.1"
# Variants that promotion reads: of the newest checkpoints, of one newest and one
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


_BASE, _SFT, _RL = "+ Qwen3-VL-8B, zero-shot", "+ Full SFT", "+ Full RL"
# `base` and `untrained` stand for one row of the paper: there, an untrained model answers in the
# form. So do a variant and its `_sampled` one: how the paper's agents decode is not said. The
# control `sft_on_rl_labels` is not the paper's.
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
    Variant("full_rl", PLANNER, CRITIC, paper=_RL),
    Variant("full_sft_sampled", PLANNER, SFT_CRITIC, answers="sampled", paper=_SFT),
    Variant("full_rl_sampled", PLANNER, CRITIC, answers="sampled", paper=_RL),
    Variant("one_agent", ONE_AGENT, ONE_AGENT, paper="One agent"),
    Variant("unfiltered", PLANNER, UNFILTERED, paper="Unfiltered data"),
    Variant("t_max_1", PLANNER, CRITIC, 1, paper="T_max = 1"),
    Variant("t_max_3", PLANNER, CRITIC, 3, paper="T_max = 3"),
    Variant("t_max_5", PLANNER, CRITIC, 5, paper="T_max = 5"),
)
VARIANTS = {variant.name: variant for variant in _VARIANTS}


@dataclass(frozen=True)
class System:
    """Versions of planner and critic."""

    planner: str
    critic: str

    @property
    def versions(self) -> dict[str, str]:
        """Name of the checkpoint -> version."""
        return {PLANNER: self.planner, CRITIC: self.critic}

    def variant(self, name: str) -> Variant:
        return Variant(name, f"{PLANNER}@{self.planner}", f"{CRITIC}@{self.critic}")

    def __str__(self) -> str:
        return f"planner {self.planner} with critic {self.critic}"


def newest_system(foundry: FoundryResource) -> System:
    """The newest versions: of the present data, else the last that were trained."""
    planner, critic = recipes.planner_sft(foundry), recipes.critic_rl(foundry)
    return System(
        recipes.newest_version(foundry.home, planner), recipes.newest_version(foundry.home, critic)
    )


def system_in_use(registry: CheckpointRegistry) -> System | None:
    """The promoted versions; None unless there are both."""
    planner, critic = registry.promoted(PLANNER), registry.promoted(CRITIC)
    return System(planner.version, critic.version) if planner and critic else None


def candidate_systems(foundry: FoundryResource) -> dict[str, System]:
    """Variant -> system that may be promoted, the newest first; none where that is in use.

    Only those whose versions are trained: one agent may be newer than the other.
    """
    registry, newest = CheckpointRegistry(foundry.home), newest_system(foundry)
    planner, critic = registry.promoted(PLANNER), registry.promoted(CRITIC)
    systems = {CANDIDATE: newest}
    if planner:
        systems[NEW_CRITIC] = System(planner.version, newest.critic)
    if critic:
        systems[NEW_PLANNER] = System(newest.planner, critic.version)
    distinct = {system: name for name, system in reversed(systems.items())}
    in_use = system_in_use(registry)
    return {
        name: system
        for name, system in systems.items()
        if distinct[system] == name
        and system != in_use
        and all(registry.is_complete(*version) for version in system.versions.items())
    }


def reference_systems(foundry: FoundryResource) -> dict[str, System]:
    """Variant -> system that candidates are compared with; none where there are no candidates.

    The one in use, and for every metric the one with the highest mean when it was promoted.
    """
    registry = CheckpointRegistry(foundry.home)
    in_use = system_in_use(registry)
    if in_use is None or not candidate_systems(foundry):
        return {}
    best = dict.fromkeys(system for system in _best_systems(registry) if system != in_use)
    return {PROMOTED: in_use, **{f"{BEST}{n}": system for n, system in enumerate(best, 1)}}


def is_system_variant(name: str) -> bool:
    """Whether a variant of the table `evaluations` is one that only promotion needs."""
    return name in (PROMOTED, NEW_PLANNER, NEW_CRITIC) or name.startswith(BEST)


def _best_systems(registry: CheckpointRegistry) -> Iterator[System]:
    """Per metric the promoted system with the highest mean when it was promoted.

    Those with a version that was rolled back or whose files are gone are left out.
    """
    usable = {
        (row.name, row.version)
        for row in (*registry.rows(PLANNER), *registry.rows(CRITIC))
        if row.status != "rejected" and registry.is_complete(row.name, row.version)
    }
    evaluated = {
        System(event.system[PLANNER], event.system[CRITIC]): event.means
        for event in (*registry.history(PLANNER), *registry.history(CRITIC))
        if event.means and set(event.system.items()) <= usable
    }
    for metric in sorted({metric for means in evaluated.values() for metric in means}):
        yield max(evaluated, key=lambda system: evaluated[system].get(metric, -inf))
