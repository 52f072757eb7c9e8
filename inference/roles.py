"""The four roles of the loop, those beside it, and the values that pass between them.

A profile binds each role to a backend; the loop knows only these Protocols. Images travel as
`EncodedImage` (encoded bytes and their hash), so that none is decoded or encoded without need.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from schemas import FoundryError
from schemas.trajectories import ModelCallRow
from warehouse import EncodedImage


@dataclass(frozen=True)
class PlanRequest:
    """What a user asks for. In `text`, `<image>` may stand for one of `images`."""

    text: str
    images: tuple[EncodedImage, ...] = ()


@dataclass(frozen=True)
class PlanStep:
    """A step of a plan. `prompt` None: a text-only step, whose text is `auxiliary_text`."""

    step_number: int
    step_name: str = ""
    instruction: str | None = None
    prompt: str | None = None
    auxiliary_text: str | None = None

    @property
    def text(self) -> str:
        """What readers of the sequence read beside the image, or instead of one."""
        return self.auxiliary_text or self.instruction or ""


@dataclass(frozen=True)
class Plan:
    steps: tuple[PlanStep, ...]
    reasoning: str = ""


@dataclass(frozen=True)
class Verdict:
    """`refined_prompt` is the critic's next proposal; empty when it accepts."""

    accepted: bool
    refined_prompt: str
    reasoning: str


@dataclass(frozen=True)
class SemanticsGrades:
    """The half of a score that compares the images before and after; 0-10 each."""

    edit_success: float
    over_edit: float


@dataclass(frozen=True)
class QualityGrades:
    """The half of a score that looks at the image after alone; 0-10 each."""

    naturalness: float
    artifacts: float


@dataclass(frozen=True)
class Score:
    """Four grades 0-10; the derived ones follow VIEScore as the paper adapts it (section 3.2)."""

    edit_success: float
    over_edit: float
    naturalness: float
    artifacts: float

    @property
    def semantics(self) -> float:
        return min(self.edit_success, self.over_edit)

    @property
    def quality(self) -> float:
        return min(self.naturalness, self.artifacts)

    @property
    def overall(self) -> float:
        return math.sqrt(self.semantics * self.quality)


@dataclass(frozen=True)
class RequestOutcome:
    """What a request led to. `images`: step number and chosen image of every step that has one.

    A plan of None is an answer in which no plan could be read.
    """

    prompt_id: str
    request: PlanRequest
    plan: Plan | None
    images: tuple[tuple[int, EncodedImage], ...] = ()

    @property
    def final(self) -> EncodedImage | None:
        """The last image; None where none was made, or the plan could not be followed."""
        return self.images[-1][1] if self.images else None


@dataclass(frozen=True)
class OutcomeGrade:
    """Whether an outcome is what was asked for, and the share of its criteria that are met."""

    success: bool | None
    criteria_met: float | None = None


@dataclass(frozen=True)
class PlanGrade:
    valid: bool | None  # its form: step numbers, numbers of images and texts, readable prompts
    correct: bool | None  # carried out without mistakes, it leads to what was asked for


class Backend(Protocol):
    """Every backend names itself and its model; both enter request hashes and the call ledger.

    Its calls raise `UnusableAnswerError`, `RetryableError` and `BackendError`.
    """

    @property
    def backend(self) -> str:
        """Backend name of the profile, such as `sketch` or `openai`."""

    @property
    def model(self) -> str:
        """Model name and revision or version; changes whenever answers may change."""


def uses_batch_api(backend: Backend) -> bool:
    """Whether its calls wait in batches for hours: they take no slots, and all begin at once."""
    return bool(getattr(backend, "uses_batch_api", False))


def max_reference_images(generator: Backend) -> int | None:
    """How many images the generator takes. 1: only the last one; None: no limit.

    The first time it may ask a server, for seconds: not in event loops.
    """
    return getattr(generator, "max_reference_images", 1)


@runtime_checkable
class Planner(Backend, Protocol):
    async def plan(self, request: PlanRequest) -> Plan:
        """Write the steps that answer a request."""


class PlanSampler(Backend, Protocol):
    async def plan(self, request: PlanRequest, draw: int = 0) -> Plan:
        """Sample a plan; each `draw` is another one, and the same one whenever it is asked for."""


@runtime_checkable
class Generator(Backend, Protocol):
    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        """Text-to-image without `images`, else an edit of the last one.

        A generator that takes the others too has the attribute `max_reference_images`.
        """


@runtime_checkable
class Critic(Backend, Protocol):
    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        """Accept `after`, made from `before` (None: text-to-image), or rewrite the prompt.

        `instruction`: the plan's prompt for the step, its goal. `prompt`: the rewritten one that
        made `after`; empty when it was the plan's own.
        """


@dataclass(frozen=True)
class RequestScope:
    """What of a request a generator can draw at all.

    Args:
        notice: what draws, for people: `Drawn by a demo world ...`.
        refusal: why nothing is drawn; None: something is.
        not_drawn: phrases of the request that the pictures will lack, as written.
        remarks: what cannot be done as requested, or not with the given pictures, a sentence each.
        suggestions: after a refusal, requests that it can draw, similar ones first.
    """

    notice: str
    refusal: str | None = None
    not_drawn: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()

    @property
    def refusal_text(self) -> str:
        """The refusal with the suggestions; empty: nothing is refused."""
        if self.refusal is None:
            return ""
        quoted = ", ".join(f"“{each}”" for each in self.suggestions)
        return f"{self.refusal} Try {quoted}." if quoted else self.refusal


@runtime_checkable
class LimitedGenerator(Protocol):
    """A generator that knows few things, and says so before anything is drawn."""

    def scope(self, request: PlanRequest, plan: Plan | None = None) -> RequestScope:
        """What it draws of a request; with its plan, also whether that leads to it.

        Raises BadImageError if an image cannot be decoded.
        """


@runtime_checkable
class Scorer(Backend, Protocol):
    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        """Grade `after` against the plan's prompt for the step."""


class SemanticsScorer(Backend, Protocol):
    async def score_semantics(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> SemanticsGrades:
        """Grade how `after` carries out the plan's prompt for the step."""


class QualityScorer(Backend, Protocol):
    async def score_quality(self, after: EncodedImage) -> QualityGrades:
        """Grade how well an image is made, whatever it shows."""


class Grader(Protocol):
    """Says whether a plan and an outcome are what a request asks for.

    Evaluation and promotion know graders only by it. None is a grade that it cannot give: such a
    metric is then missing, not 0.
    """

    name: str

    async def grade_plan(self, outcome: RequestOutcome) -> PlanGrade: ...

    async def grade_outcome(self, outcome: RequestOutcome) -> OutcomeGrade: ...

    def ledger(self) -> list[ModelCallRow]:
        """A row per model call that it made."""


class UnusableAnswerError(Exception):
    """A backend's refusal or unusable answer to one request, which a retry would not change."""


class RetryableError(Exception):
    """The same request may succeed later: rate limit, overload, outage."""


class BackendError(FoundryError):
    """No call of a backend can succeed until a user acts: the run stops, journals are stored."""


@dataclass(frozen=True)
class Roles:
    """The backends a profile has bound to the four roles.

    Args:
        mix: the generators that share the bank's prompts, with weights (`generators.py`); users'
            requests, evaluations and benchmarks are drawn by `generator`, its first member. None:
            that draws all.
    """

    planner: Planner
    generator: Generator
    critic: Critic
    scorer: Scorer
    mix: tuple[tuple[Generator, float], ...] = ()

    @property
    def names(self) -> dict[str, str]:
        """Planner, generator and critic -> backend, model and version."""
        roles = ("planner", "generator", "critic")
        return {role: qualified_name(getattr(self, role)) for role in roles}


def qualified_name(backend: Backend) -> str:
    """`backend/model`, as in the tables' planner, generator, critic and scorer columns."""
    return f"{backend.backend}/{backend.model}"
