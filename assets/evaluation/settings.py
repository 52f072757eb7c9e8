"""Settings: variants, numbers of held-out items, and confidence intervals."""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, field_validator

from inference.backends.factory import Judge
from inference.backends.providers.settings import RubricModel
from schemas.yaml_config import ConfigModel

from .variants import ON_REQUEST, VARIANTS


def _known(name: str) -> str:
    if name not in VARIANTS:
        raise ValueError(f"no variant {name}; there are: {', '.join(VARIANTS)}")
    return name


VariantName = Annotated[str, AfterValidator(_known)]
Value = TypeVar("Value")


class ItemSettings(ConfigModel):
    """Numbers of items of a held-out split; all of them where there are fewer."""

    stories: int = Field(ge=0, description="Requests to plan and to run")
    verdicts: int = Field(
        ge=0, description="Stored attempts to judge, as many again for each of the two verdicts"
    )


class JudgeSettings(Judge):
    """A judge, and the model that writes its rubrics."""

    rubrics: RubricModel = Field(
        description="Writes the criteria of a request, once: the asset `rubrics`"
    )


class AblationSettings(ConfigModel):
    """The asset `ablation`: variants that are trained and evaluated once per training seed."""

    variants: tuple[VariantName, ...] = Field(
        tuple(name for name in VARIANTS if name not in ON_REQUEST),
        min_length=1,
        description="Variants that are trained and evaluated; relations of others are not "
        "measured. All by default but `rl_trajectory`, `rl_episode` and `rl_one_agent`. Oracles "
        "are left out where the profile's section of the provider has not that model as planner "
        "and critic, or its key is not set",
    )
    benchmark: str | None = Field(
        None,
        description="Benchmark that they are compared on instead of held-out requests, with the "
        "files, items and judge of section `benchmarks`; `interleave run --benchmark`",
    )
    training_seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0,),
        min_length=1,
        description="Each is added to the seeds of all trainings of a variant; 0: the profile's "
        "own, with the checkpoints of the lineage",
    )

    @field_validator("variants", "training_seeds")
    @classmethod
    def _distinct(cls, values: tuple[Value, ...]) -> tuple[Value, ...]:
        if len(set(values)) < len(values):
            raise ValueError("a value is named twice: remove one")
        return values


class EvaluationSettings(ConfigModel):
    """Evaluation on held-out requests of the pack, and the ablation (paper, table 5)."""

    variants: tuple[VariantName, ...] = Field(
        ("generator_only", "planner_sft", "full_sft", "full_rl"),
        min_length=1,
        description="Variants of the system that the asset `evaluation` compares",
    )
    heldout: ItemSettings = Field(
        ItemSettings(stories=120, verdicts=200),
        description="Templates and combinations of terms never trained on: two thirds for "
        "development and promotion, one third (test) reported only",
    )
    heldout_category: ItemSettings = Field(
        ItemSettings(stories=60, verdicts=60),
        description="Sub-categories never trained on (test): reported only",
    )
    judge: JudgeSettings | None = Field(
        None,
        description="Grades by rubrics, for any pack; null: the exact grader where the pack's "
        "world has one, else plans and outcomes are not graded, and nothing is promoted",
    )
    ablation: AblationSettings = Field(
        AblationSettings(), description="Training seeds of the asset `ablation`"
    )
    t_max: int = Field(5, ge=1, description="Attempts per step with a critic (paper: 5)")
    redraws: int = Field(
        1, ge=1, description="Images drawn of a rewritten prompt; their grades are averaged"
    )
    seed: int = Field(0, description="Seed of the sample of items and of every draw")
    in_flight: int = Field(96, ge=1, description="Items worked on concurrently")
    resamples: int = Field(2000, ge=100, description="Bootstrap resamples per interval")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Probability of the intervals")
