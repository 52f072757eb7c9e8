"""A critic's answer and its reward (InterleaveThinker, section 3.4), as pure functions.

Both published forms are one formula over differently scaled parts:

    R = 0.5 * format + 0.5 * (alpha * accuracy + (1 - alpha) * step)

| part | paper | code |
|---|---|---|
| format | 1: the answer can be parsed, else 0 | the same |
| accuracy | 0: verdict right, -1: wrong | 1: right, 0: wrong |
| step | gain in overall score / 10: -1 to 1 | 0.75 S + 0.25 Q: 0 to 1 |
| redrawn | when the policy rejects | when the image is bad, whatever the verdict |
| not redrawn | no gain: 0 | neutral: 0.5 |

The overall score is the root of semantics times quality, as everywhere else here. The code grades
them apart: S and Q are the gains in semantics and in quality, each `(gain / 10 + 1) / 2`. With
alpha 0.2 its content half is the published `0.2 accuracy + 0.6 S + 0.2 Q`.

Consequences of the paper's form, which follows the loop:

- accepting a good image earns 0 for the step, since the image stays;
- accepting a bad one as well, and costs accuracy;
- rejecting a good one is redrawn and graded like any rejection: it rarely gains and often loses;
- rejecting a bad one earns the improvement of its new prompt.

A malformed answer has its format part only. A prompt that the generator refuses to draw, or answers
with what is no image, counts as the worst image. A rollout whose image failed for another reason
has no reward: the caller masks it, where the reference gives it a neutral one.
"""

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from inference.agent_prompts.formatting import REFINE_KEY, SUCCESS_KEY
from inference.backends.factory import GeneratorBackend
from inference.settings import Limits
from schemas.yaml_config import ConfigModel

Form = Literal["paper", "code"]
Part = Literal["accuracy", "step"]

FORMAT_WEIGHT = 0.5
_SEMANTICS_WEIGHT = 0.75  # of the code's step part: 0.6 of 0.6 + 0.2
_SUCCESS_WEIGHT = 0.8  # of a trajectory; the rest is for drawings that it does without
_MAX_GRADE = 10.0
_AROUND_TAGS = re.compile(r"\s*([<>/])\s*")
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class RewardLimits(ConfigModel):
    """The load that rewards put on the models that they ask."""

    concurrency: int = Field(4, ge=1, description="Drawings under way at once")
    scorings: int = Field(8, ge=1, description="Scorings and judgements under way at once")
    draw_timeout_seconds: float = Field(
        70, gt=0, description="Time for one try to draw, and for one to score (reference: 70)"
    )
    tries: int = Field(2, ge=1, description="Tries of a call whose errors may pass")
    backoff_seconds: float = Field(1.0, ge=0, description="Longest wait before the second try")
    max_failed_share: float = Field(
        0.2, ge=0, le=1, description="Training fails when more of its calls than this failed"
    )

    @property
    def limits(self) -> Limits:
        """The same for `RetryingCaller`."""
        return Limits(
            generator=self.concurrency,
            agents=self.scorings,
            call_timeout_seconds=self.draw_timeout_seconds,
            tries=self.tries,
            backoff_seconds=self.backoff_seconds,
        )


class PlanRewardSettings(RewardLimits):
    """The reward of a plan: half for its form, half for what a grader says of it."""

    of: Literal["plan", "outcome", "episode"] = Field(
        "plan",
        description="plan: whether it leads to what was requested; outcome: whether the pictures "
        "do that the loop makes of it, with the profile's generator and critic; episode: the same, "
        "and the drawings that it does without, where the policy, an agent of both roles, judges "
        "the pictures as well, and is trained on all its answers",
    )

    @property
    def asks_critic(self) -> bool:
        """Whether the profile's critic judges pictures that are drawn for rewards."""
        return self.of == "outcome"


class RewardSettings(RewardLimits):
    """The reward of a critic's answer."""

    form: Form = Field(
        "paper",
        description="paper: accuracy 0 or -1, step -1 to 1, a drawing for every rejection; code: "
        "both 0 to 1, a drawing for every row whose picture is bad (as the reference's code)",
    )
    of: Literal["step", "trajectory", "episode"] = Field(
        "step",
        exclude_if=lambda value: value == "step",  # in no version of a checkpoint of before
        description="What the step part is: the gain of the next picture (the paper); or how the "
        "trajectory ends that goes on with the answer, with the profile's critic from there on: "
        "0.8 if it is as requested, and up to 0.2 for the drawings that it does without; episode: "
        "the same, but the policy judges all later pictures too, and is trained on all its answers",
    )
    alpha: float = Field(0.2, ge=0, le=1, description="Weight of accuracy against step")
    without: tuple[Part, ...] = Field(
        (), max_length=1, description="Ablation: a part that is left out; the other gets its weight"
    )
    seed: int = Field(0, ge=0, description="Seed of a prompt's first drawing (reference: 0)")
    draws: int = Field(
        1,
        ge=1,
        description="Drawings of a rewritten prompt, with the seeds that follow `seed`, or "
        "continuations of the trajectory; the step part is their mean (reference: 1)",
    )
    generators: tuple[GeneratorBackend, ...] = Field(
        (),
        description="Backends whose generators draw, each for rows of its own: those whose picture "
        "it drew, and an equal share of the others; none: those of `roles`",
    )

    @property
    def asks_critic(self) -> bool:
        """As of a plan; in an episode the policy judges."""
        return self.of == "trajectory"

    @model_validator(mode="after")
    def _one_episode(self) -> "RewardSettings":
        if self.of == "episode" and self.draws > 1:
            raise ValueError(f"draws {self.draws}: an episode is played once: set draws to 1")
        if self.of == "episode" and "step" in self.without:
            raise ValueError("without step: an episode is played for its step part: set of to step")
        return self

    @field_validator("generators")
    @classmethod
    def _each_once(cls, names: tuple[GeneratorBackend, ...]) -> tuple[GeneratorBackend, ...]:
        if len(set(names)) < len(names):
            raise ValueError(f"{', '.join(names)}: name each backend once")
        return names


@dataclass(frozen=True)
class ParsedAnswer:
    """A verdict and the next prompt; an empty prompt stands for the one before."""

    verdict: bool
    refined_prompt: str


@dataclass(frozen=True)
class Grades:
    """Semantics and quality of an image, 0-10."""

    semantics: float
    quality: float

    @property
    def overall(self) -> float:
        return math.sqrt(self.semantics * self.quality)


WORST = Grades(0.0, 0.0)


@dataclass(frozen=True)
class RewardParts:
    """The parts of one reward; None: unknown, or left out."""

    format: float
    accuracy: float | None = None
    step: float | None = None


def parse_answer(text: str) -> ParsedAnswer | None:
    """The answer in a turn of the critic; None where it is malformed.

    As the reference parses it: white space around `<`, `>` and `/` is removed (also inside the
    prompt), `<think>` may be missing, and JSON is repaired. `<answer>` must be there and closed:
    one that was cut off is malformed. The verdict must be a boolean and the prompt a string.
    """
    import json_repair

    content = _AROUND_TAGS.sub(r"\1", text).rpartition("</think>")[2]
    answer: Any = None
    if match := _ANSWER.search(content):
        # Thousands of open brackets, or numbers without end, are an error.
        with suppress(ValueError, RecursionError):
            answer = json_repair.loads(match[1])
    if not isinstance(answer, dict):
        return None
    verdict, refined = answer.get(SUCCESS_KEY), answer.get(REFINE_KEY)
    if not isinstance(verdict, bool) or not isinstance(refined, str):
        return None
    return ParsedAnswer(verdict, refined.strip())


def format_reward(answer: ParsedAnswer | None) -> float:
    """1 for an answer that can be parsed, 0 for a malformed one."""
    return 0.0 if answer is None else 1.0


def accuracy_reward(verdict: bool, truth: bool, form: Form = "paper") -> float:
    """-|j - J| in the paper, 1 - |j - J| in the code."""
    correct = float(verdict == truth)
    return correct - 1.0 if form == "paper" else correct


def needs_image(verdict: bool, truth: bool, form: Form = "paper") -> bool:
    """Whether the step part requires the new prompt's image."""
    return not verdict if form == "paper" else not truth


def neutral_step_reward(form: Form = "paper") -> float:
    """The step part without a new image: no gain, on the scale of the form."""
    return 0.0 if form == "paper" else 0.5


def step_reward(before: Grades, after: Grades, form: Form = "paper") -> float:
    """Gain of the new prompt's image over the judged one."""
    if form == "paper":
        return (after.overall - before.overall) / _MAX_GRADE
    semantics = _scale_gain(after.semantics - before.semantics)
    quality = _scale_gain(after.quality - before.quality)
    return _SEMANTICS_WEIGHT * semantics + (1 - _SEMANTICS_WEIGHT) * quality


def trajectory_reward(success: bool, drawings: int, most: int) -> float:
    """The step part by the end of a trajectory, 0 to 1. `most`: drawings that it may take."""
    saved = 1 - drawings / most if most else 1.0
    return _SUCCESS_WEIGHT * success + (1 - _SUCCESS_WEIGHT) * saved


def total_reward(parts: RewardParts, settings: RewardSettings) -> float:
    """The reward, 0 to 1 in both forms; of a malformed answer its format part alone."""
    # A part that is left out gives its weight to the other.
    weights: dict[tuple[Part, ...], float] = {("step",): 1.0, ("accuracy",): 0.0}
    alpha = weights.get(settings.without, settings.alpha)
    content = alpha * (parts.accuracy or 0.0) + (1 - alpha) * (parts.step or 0.0)
    return FORMAT_WEIGHT * parts.format + (1 - FORMAT_WEIGHT) * content


def _scale_gain(gain: float) -> float:
    return (gain / _MAX_GRADE + 1) / 2
