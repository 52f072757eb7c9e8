"""The four roles of the loop and what passes between them.

A profile binds each role to a backend; the loop knows only these Protocols. Pictures travel as
`EncodedImage` (encoded bytes and their hash), so that nothing is decoded or encoded without need.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from schemas import FoundryError
from warehouse import EncodedImage


@dataclass(frozen=True)
class PlanRequest:
    """What a user asks for: text, where `<image>` may stand for the given pictures."""

    text: str
    images: tuple[EncodedImage, ...] = ()


@dataclass(frozen=True)
class PlanStep:
    """A step of a plan. `prompt` None: a text-only step, `auxiliary_text` is its answer."""

    step_number: int
    step_name: str
    instruction: str | None
    prompt: str | None
    auxiliary_text: str | None = None


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


class Backend(Protocol):
    """Every role's backend says who it is; both enter request hashes and the call ledger."""

    @property
    def backend(self) -> str:
        """Backend name of the profile, such as `sketch` or `openai`."""

    @property
    def model(self) -> str:
        """Model name and revision or version; changes whenever answers may change."""


def uses_batch_api(backend: Backend) -> bool:
    """Whether its calls wait in batches for hours: then they need no slots, and all begin."""
    return bool(getattr(backend, "patient", False))


def max_reference_images(generator: Backend) -> int | None:
    """How many pictures a generator looks at. 1: only the last; None: as many as it is given."""
    limit: int | None = getattr(generator, "references", 1)
    return limit


@runtime_checkable
class Planner(Backend, Protocol):
    async def plan(self, request: PlanRequest) -> Plan:
        """Write the steps that answer a request.

        Raises:
            BadAnswer: no plan can be made of this request.
        """


@runtime_checkable
class Generator(Backend, Protocol):
    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        """Draw; without `images` text-to-image, with them an edit of the last one.

        A generator that looks at the others, too, says so: see `max_reference_images`.

        Raises:
            BadAnswer: this prompt or picture cannot be drawn, now or later.
        """


@runtime_checkable
class Critic(Backend, Protocol):
    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        """Accept `after` or rewrite the prompt.

        Args:
            before: the picture it was drawn from; None: drawn from scratch.
            instruction: the plan's prompt for the step, which states the goal.
            prompt: the rewritten prompt that made `after`; empty when it was the plan's own.
        """


@runtime_checkable
class Scorer(Backend, Protocol):
    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        """Grade `after` against the plan's prompt for the step."""


class UnusableAnswerError(Exception):
    """A backend's final refusal or unusable answer to one request: quarantine it, go on."""


class RetryableError(Exception):
    """A backend's word that the same request may succeed later: rate limit, overload, outage."""


class BackendError(FoundryError):
    """No call of a backend can succeed until somebody acts: the run stops, journals are kept."""


@dataclass(frozen=True)
class Roles:
    """The backends a profile has bound to the four roles."""

    planner: Planner
    generator: Generator
    critic: Critic
    scorer: Scorer


def qualified_name(backend: Backend) -> str:
    """`backend/model`, as the tables' planner, generator, critic and scorer columns spell it."""
    return f"{backend.backend}/{backend.model}"
