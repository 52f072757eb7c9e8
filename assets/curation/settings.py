"""Settings of the curation: filter, split, verdicts, balance, data sets, exports.

The paper (section 3.2) names the rules but gives no numbers; the defaults are this project's.
"""

from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field

from schemas.yaml_config import ConfigModel

OURS = "ours"
Score = Annotated[float, Field(ge=0, le=10)]


class FilterRule(NamedTuple):
    """A rule that drops steps.

    Args:
        condition: SQL over table `chains` of `steps.py`; names in braces are those of the settings.
    """

    condition: str
    description: str


FILTER_RULES = {
    "negative_trend": FilterRule(
        "slope < {min_slope} AND worst_overall < {stable_high}",
        "scores fall from attempt to attempt",
    ),
    "degradation": FilterRule(
        "best_retry < first_overall - {max_degradation}",
        "no retry is as good as the first attempt (EditThinker keeps max(S_t>1) >= S_1)",
    ),
    "persistent_low_quality": FilterRule("best_overall < {low_quality}", "no attempt is good"),
}


def _known_rule(name: str) -> str:
    if name not in FILTER_RULES:
        raise ValueError(f"no rule {name!r}; there are {', '.join(FILTER_RULES)}")
    return name


class FilterSettings(ConfigModel):
    """Which steps are dropped. A step is its chain of attempts, scored 0-10 each."""

    rules: tuple[Annotated[str, AfterValidator(_known_rule)], ...] = Field(
        tuple(FILTER_RULES),
        description="Rules that apply; a step's drop_reason is the first rule that it breaks: "
        + "; ".join(f"{name}: {rule.description}" for name, rule in FILTER_RULES.items()),
    )
    min_slope: float = Field(
        -0.25,
        description="negative_trend: least-squares slope of the overall scores, per iteration, "
        "below which a chain counts as falling",
    )
    stable_high: Score = Field(
        8.0, description="negative_trend: a chain whose every attempt scores at least this is kept"
    )
    max_degradation: float = Field(
        0.0,
        ge=0,
        description="degradation: how far the best retry may stay below the first attempt",
    )
    low_quality: Score = Field(
        5.0, description="persistent_low_quality: a chain whose best score is below this is dropped"
    )


class SplitSettings(ConfigModel):
    """How retained steps of train prompts are split into SFT (low variance) and RL (high)."""

    unit: Literal["prompt", "step"] = Field(
        "prompt",
        description="What goes to one side. prompt: all steps of a prompt, and SFT and RL share no "
        "prompt, picture or plan; step, as in the paper: each step by its own variance, and a "
        "prompt may have steps on both sides",
    )
    theta: float | None = Field(
        None, ge=0, description="Variance above which a prompt or step goes to RL; null: by ratio"
    )
    ratio: float = Field(
        2.0, gt=0, description="Without theta: SFT steps wanted per RL step (paper: 2:1)"
    )

    @property
    def unit_columns(self) -> tuple[str, ...]:
        """Columns of `steps` that identify a unit; no unit is in both SFT and RL."""
        return ("prompt_id",) if self.unit == "prompt" else ("trajectory_id", "step_number")


class VerdictSettings(ConfigModel):
    """When the teacher critic's verdict and the scores contradict each other."""

    accept_at_least: Score = Field(
        6.0, description="An accepted image scores at least this overall"
    )
    reject_at_most: Score = Field(
        9.5,
        description="A rejected image scores at most this overall: one flaw in a good image costs "
        "a point or two, so only a nearly perfect score contradicts a rejection",
    )
    sft: Literal["drop", "critic", "scores"] = Field(
        "drop",
        description="Contradicted SFT rows: drop, or learn the verdict of critic or scores; with "
        "`scores`, rows without a proven rewrite are learned as well, for their verdict",
    )
    rl: Literal["drop", "critic", "scores"] = Field(
        "scores",
        description="Contradicted RL rows: drop, or take the verdict of the critic or the scores",
    )
    unproven_rewrites: bool = Field(
        False,
        description="Learn (SFT) the rewrite after the best image, which led to no better one",
    )


class BalanceSettings(ConfigModel):
    """Resampling of verdicts so that every iteration has as many True as False; one that has only
    one kind is left out."""

    mode: Literal["up", "down", "none"] = Field(
        "up",
        description="up: repeat the rarer verdict, a row 3 times at most, then sample the other "
        "down to it; down: only the latter; none: no resampling",
    )
    seed: int = Field(0, description="Which rows are repeated and left out")


class CriticSettings(ConfigModel):
    """The critic's SFT and RL sets."""

    agent_prompt: str = Field(
        "critic", description="Agent prompt, by name (newest) or name@version"
    )
    verdicts: VerdictSettings = Field(
        VerdictSettings(), description="Contradictions between critic and scores"
    )
    balance_sft: BalanceSettings = Field(BalanceSettings(), description="Balance of the SFT set")
    balance_rl: BalanceSettings = Field(
        BalanceSettings(mode="down"), description="Balance of the RL set"
    )
    canvas_size: int | None = Field(
        None,
        ge=8,
        description="Side in pixels of the white image before a first image; null: as large as the "
        "images",
    )


class CommSettings(ConfigModel):
    """Import of interleaved documents in CoMM's format."""

    path: Path | None = Field(
        None, description="JSON, JSON lines or .pt file of documents; null: no import"
    )
    images: Path | None = Field(
        None, description="Folder that image_path is relative to; null: beside the file"
    )
    max_steps: int = Field(30, ge=1, description="Longer documents are quarantined")
    continuation_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of documents whose first steps are given to be continued, as in CoMM's "
        "task 3; the others give all pictures and ask for their texts, as do those without an "
        "image on both sides of any cut",
    )


class PlannerSettings(ConfigModel):
    """The planner's sets. Planner data is not filtered (paper, section 3.2)."""

    text_prompt: str = Field("planner-text", description="Agent prompt for requests without images")
    interleaved_prompt: str = Field(
        "planner-interleaved", description="Agent prompt for requests with images"
    )
    comm: CommSettings = Field(CommSettings(), description="Import of CoMM documents")
    rl_prompts: int = Field(
        5000, ge=1, description="Requests of `planner_rl` at most, for GRPO of the planner"
    )
    seed: int = Field(
        0, description="Where plans are cut, and which CoMM documents are continued from where"
    )


class PreferenceSettings(ConfigModel):
    """Pairs of critic answers for DPO, beside those of people (`reviews.use`)."""

    scores: bool = Field(
        False, description="Pairs decided by scores: verdicts, and refinements of a step"
    )
    min_gap: Score = Field(
        1.0, gt=0, description="By how much the images of two refinements differ in overall score"
    )


class SequenceSettings(ConfigModel):
    """Complete trajectories as interleaved sequences."""

    form: Literal["ours", "reference"] = Field(
        "ours",
        description="ours: every tag is closed; reference: as the reference's scripts write them, "
        "from trajectories with as many accepted images as their plan has steps; export "
        "`reference` then has its two files, interleaved_gen_simple.json and "
        "interleaved_gen_reflection.json",
    )
    forms: tuple[Literal["easy", "reflection"], ...] = Field(
        ("easy", "reflection"), description="Forms to write"
    )
    exhausted: bool = Field(
        False, description="Also trajectories with a chosen image that was not accepted"
    )


Weight = Annotated[float, Field(ge=0)]


class MixSettings(ConfigModel):
    """What is trained on: `ours`, the set that was made here, and imports by name, with weights.

    A weight says how often a row occurs: 1 once, 0.5 half of the rows, 2 every row twice.
    """

    planner_sft: dict[str, Weight] = Field({OURS: 1}, description="Of the planner's SFT set")
    critic_sft: dict[str, Weight] = Field({OURS: 1}, description="Of the critic's SFT set")
    critic_rl: dict[str, Weight] = Field({OURS: 1}, description="Of the critic's RL set")


TargetName = Literal["planner_sft", "critic_sft", "critic_rl"]


class ExportSettings(ConfigModel):
    """Data sets in the formats of other tools."""

    formats: tuple[
        Literal["llamafactory", "verl", "reference", "huggingface", "webdataset", "preferences"],
        ...,
    ] = Field(
        ("llamafactory", "verl", "reference", "huggingface"),
        description="Formats to write; with `reviews.use` or `preferences.scores`, preferences "
        "as well",
    )
    mix: MixSettings | None = Field(
        None, description="Imported rows in the exports for trainers; null: none"
    )
    rows_per_file: int = Field(
        10_000, ge=1, description="Rows a file of an export; format reference has one file"
    )


class ReviewSettings(ConfigModel):
    """How reviews of people enter the training sets."""

    use: bool = Field(
        False,
        description="Verdicts and prompts of people take the place of the critic's, and what they "
        "preferred becomes pairs for DPO",
    )
    share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="A shard is held back from the training sets until this share of its attempts "
        "has a verdict of a person",
    )


class CurationSettings(ConfigModel):
    """Everything between scores and exported data sets."""

    filter: FilterSettings = Field(FilterSettings(), description="Which steps are dropped")
    split: SplitSettings = Field(SplitSettings(), description="SFT or RL, by variance")
    critic: CriticSettings = Field(CriticSettings(), description="Critic sets")
    planner: PlannerSettings = Field(PlannerSettings(), description="Planner set")
    sequences: SequenceSettings = Field(SequenceSettings(), description="Interleaved sequences")
    exports: ExportSettings = Field(ExportSettings(), description="Exports")
    reviews: ReviewSettings | None = Field(
        None, description="What reviews of people are used for; null: nothing"
    )

    preferences: PreferenceSettings = Field(
        PreferenceSettings(), description="Pairs for DPO that scores decide"
    )

    @property
    def makes_pairs(self) -> bool:
        """Whether `critic_dpo` has pairs for DPO."""
        return self.uses_reviews or self.preferences.scores

    @property
    def uses_reviews(self) -> bool:
        """Whether people's opinions enter the training sets."""
        return self.reviews is not None and self.reviews.use

    @property
    def export_formats(self) -> tuple[str, ...]:
        """The formats to write."""
        preferences = ("preferences",) if self.makes_pairs else ()
        return tuple(dict.fromkeys((*self.exports.formats, *preferences)))
