"""The rewards of a critic's answer (InterleaveThinker, section 3.4), as pure functions.

Both published forms are one formula over differently scaled parts:

    R = 0.5 * format + 0.5 * (alpha * accuracy + (1 - alpha) * step)

| part | paper | code |
|---|---|---|
| format | 1: the answer can be read, else 0 | the same |
| accuracy | 0: verdict right, -1: wrong | 1: right, 0: wrong |
| step | gain in overall score / 10: -1 to 1 | 0.75 S + 0.25 Q: 0 to 1 |
| drawn | when the policy rejects | when the picture is bad, whatever the policy says |
| not drawn | nothing gained: 0 | neutral: 0.5 |

The overall score is the root of semantics times quality, as everywhere else here. The code grades
them apart: S and Q are the gains in semantics and in quality, each `(gain / 10 + 1) / 2`. With
alpha 0.2 its content half is the published `0.2 accuracy + 0.6 S + 0.2 Q`.

What follows in the paper's form, which acts as the loop would:

- accepting a good picture earns 0 for the step: the picture stays;
- accepting a bad one too, and is paid for by accuracy: nothing was refined;
- rejecting a good one is drawn and graded like any rejection: it rarely gains, and often loses;
- rejecting a bad one earns what its new prompt improved.

A malformed answer has its format part only. A drawing that failed has no reward at all: it is
masked by the caller, never given a neutral one as the reference does.
"""

import math
from dataclasses import dataclass

from .answer_parsing import ParsedAnswer
from .settings import Form, RewardSettings

_FORMAT_WEIGHT = 0.5
_SEMANTICS_WEIGHT = 0.75  # of the code's step part: 0.6 of 0.6 + 0.2
_TOP = 10.0  # of every grade


@dataclass(frozen=True)
class Grades:
    """Semantics and quality of a picture, 0-10."""

    semantics: float
    quality: float

    @property
    def overall(self) -> float:
        return math.sqrt(self.semantics * self.quality)


@dataclass(frozen=True)
class RewardParts:
    """The parts of one reward; None: not known, or left out."""

    format: float
    accuracy: float | None = None
    step: float | None = None


def format_reward(answer: ParsedAnswer | None) -> float:
    """1 for an answer that can be read, 0 for a malformed one."""
    return 0.0 if answer is None else 1.0


def accuracy_reward(verdict: bool, truth: bool, form: Form = "paper") -> float:
    """-|j - J| in the paper, 1 - |j - J| in the code."""
    right = float(verdict == truth)
    return right - 1.0 if form == "paper" else right


def is_drawn(verdict: bool, truth: bool, form: Form = "paper") -> bool:
    """Whether the step part takes a drawing."""
    return not verdict if form == "paper" else not truth


def undrawn_reward(form: Form = "paper") -> float:
    """The step part where nothing is drawn: nothing gained, on the scale of the form."""
    return 0.0 if form == "paper" else 0.5


def step_reward(before: Grades, after: Grades, form: Form = "paper") -> float:
    """What the new prompt's picture gained on the one that was judged."""
    if form == "paper":
        return (after.overall - before.overall) / _TOP
    semantics = _normalised(after.semantics - before.semantics)
    quality = _normalised(after.quality - before.quality)
    return _SEMANTICS_WEIGHT * semantics + (1 - _SEMANTICS_WEIGHT) * quality


def total(parts: RewardParts, settings: RewardSettings) -> float:
    """The whole reward, between 0 and 1 in both forms: of a malformed answer its format alone."""
    alpha = settings.accuracy_weight
    content = alpha * (parts.accuracy or 0.0) + (1 - alpha) * (parts.step or 0.0)
    return _FORMAT_WEIGHT * parts.format + (1 - _FORMAT_WEIGHT) * content


def _normalised(gain: float) -> float:
    return (gain / _TOP + 1) / 2
