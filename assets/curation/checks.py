"""Blocking checks of the training sets, which run before anything is trained on them."""

from itertools import chain

import pyarrow.compute as pc

from schemas import Table
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT, SEQUENCES, STEPS
from schemas.prompts import PROMPTS

from ..core import integrity
from ..core.checks import Rule, blocking_checks, schema_violations
from ..core.foundry import FoundryResource
from ..trajectories.assets import SCORE_SET, TRAJECTORY_SET
from .assets import CRITIC_RL_SET, CRITIC_SFT_SET, PLANNER_SFT_SET, SEQUENCE_SET, STEP_SET
from .settings import BalanceSettings


def _disjoint_splits(foundry: FoundryResource, _shard: str | None) -> integrity.Violations:
    lake = foundry.home.lake
    steps = lake.read(STEPS, columns=["prompt_id", "split"])
    prompts = lake.read(PROMPTS, columns=["prompt_id", "split"])
    sides = [(s, steps.filter(pc.field("split") == s)) for s in ("sft", "rl")]
    heldout = prompts.filter(pc.field("split") != "train")
    return integrity.shared_prompts([*sides, ("held-out", heldout)])


def _only_training_prompts(table: Table, split: str | None) -> Rule:
    """A set holds prompts of the train split alone and, for critic sets, of its own side."""

    def rule(foundry: FoundryResource, _shard: str | None) -> integrity.Violations:
        lake = foundry.home.lake
        rows = (table.name, lake.read(table, columns=["prompt_id"]))
        prompts = lake.read(PROMPTS, columns=["prompt_id", "split"])
        excluded = [("held-out", prompts.filter(pc.field("split") != "train"))]
        if split:
            steps = lake.read(STEPS, columns=["prompt_id", "split"])
            other = "rl" if split == "sft" else "sft"
            excluded.append((other, steps.filter(pc.field("split") == other)))
        shared = (integrity.shared_prompts([rows, prompt_set]) for prompt_set in excluded)
        return list(chain.from_iterable(shared))

    return rule


def _placeholders(table: Table, images: str = "images") -> Rule:
    return lambda foundry, _: integrity.mismatched_placeholders(
        foundry.home.lake.read(table), images
    )


def _images_present(table: Table, *columns: str) -> Rule:
    def rule(foundry: FoundryResource, _shard: str | None) -> integrity.Violations:
        data = foundry.home.lake.read(table, columns=list(columns))
        return integrity.missing_images(foundry.home.images, integrity.distinct_strings(data))

    return rule


def _balanced(table: Table, verdict: str, side: str) -> Rule:
    def rule(foundry: FoundryResource, _shard: str | None) -> integrity.Violations:
        settings: BalanceSettings = getattr(foundry.settings.curation.critic, f"balance_{side}")
        if settings.mode == "none":
            return []
        rows, one_sided = foundry.home.lake.read(table), settings.one_sided == "keep"
        return integrity.unbalanced_verdicts(rows, verdict, settings.tolerance, one_sided)

    return rule


_TRAIN_ONLY = "Nothing of a prompt is in two of SFT, RL and held-out"
_PLACEHOLDERS = "As many <image> placeholders as images"
_IMAGES = "Every image is in the store"
_BALANCED = "As many True as False in every iteration, within the tolerance"

steps_checks = blocking_checks(
    STEP_SET,
    {
        # the checks of a shard's run see only that shard
        "shards_hold": (
            "Keys and references hold over all shards",
            lambda foundry, _: schema_violations((TRAJECTORY_SET, SCORE_SET), foundry),
        ),
        "splits_disjoint": (_TRAIN_ONLY, _disjoint_splits),
    },
)
critic_sft_checks = blocking_checks(
    CRITIC_SFT_SET,
    {
        "splits_disjoint": (_TRAIN_ONLY, _only_training_prompts(CRITIC_SFT, "sft")),
        "placeholders_match": (_PLACEHOLDERS, _placeholders(CRITIC_SFT)),
        "images_present": (_IMAGES, _images_present(CRITIC_SFT, "images")),
        "verdicts_balanced": (_BALANCED, _balanced(CRITIC_SFT, "accepted", "sft")),
    },
)
critic_rl_checks = blocking_checks(
    CRITIC_RL_SET,
    {
        "splits_disjoint": (_TRAIN_ONLY, _only_training_prompts(CRITIC_RL, "rl")),
        "placeholders_match": (
            _PLACEHOLDERS,
            _placeholders(CRITIC_RL, "[origin_image, edited_image]"),
        ),
        "images_present": (_IMAGES, _images_present(CRITIC_RL, "origin_image", "edited_image")),
        "verdicts_balanced": (_BALANCED, _balanced(CRITIC_RL, "evaluation.success", "rl")),
    },
)
planner_sft_checks = blocking_checks(
    PLANNER_SFT_SET,
    {
        "splits_disjoint": (_TRAIN_ONLY, _only_training_prompts(PLANNER_SFT, None)),
        "placeholders_match": (_PLACEHOLDERS, _placeholders(PLANNER_SFT)),
        "images_present": (_IMAGES, _images_present(PLANNER_SFT, "images")),
    },
)
sequences_checks = blocking_checks(
    SEQUENCE_SET,
    {
        "splits_disjoint": (_TRAIN_ONLY, _only_training_prompts(SEQUENCES, None)),
        "placeholders_match": (_PLACEHOLDERS, _placeholders(SEQUENCES)),
        "images_present": (_IMAGES, _images_present(SEQUENCES, "images")),
    },
)
