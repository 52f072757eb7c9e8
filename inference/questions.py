"""Questions to chat models beside the loop: what each one reads, and the form of its answer.

A new one is a class here and a template in `agent_prompts/`. Reasoning is the first field of an
answer, so that a model reasons before it decides. Class names, descriptions and docstrings of
answers are part of the schemas that are sent: they enter what a model is asked.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from schemas.trajectories import Role
from warehouse import EncodedImage

from .agent_prompts.templates import IMAGE, escape_tags, insert_image_tags, render
from .roles import Backend, Plan, PlanRequest, PlanStep, RequestOutcome

T = TypeVar("T")


class AnswerFormatError(Exception):
    """An answer that violates its schema; the message is also sent to the model."""


class AnswerItem(BaseModel):
    model_config = ConfigDict(extra="forbid")


class StructuredAnswer(AnswerItem):
    """No field is optional: providers enforce schemas strictly only when all are required."""

    reasoning: str = Field(description="Your thoughts, before you decide")

    def value(self) -> Any:
        """What it says, as the question's `answer_type`."""


class Question(ABC, Generic[T]):
    """A question to a `Respondent`.

    Attributes:
        answer_type: T; journals store it as JSON.
        form: the schema of the answer; None: it is text.
    """

    role: ClassVar[Role]
    answer_type: ClassVar[type]
    form: ClassVar[type[StructuredAnswer] | None] = None

    @property
    @abstractmethod
    def content(self) -> dict[str, Any]:
        """All that the answer depends on, as JSON, in which images are hashes."""

    @property
    def images(self) -> tuple[EncodedImage, ...]:
        """Those that the text names, in order."""
        return ()

    @abstractmethod
    def text(self, prompt: Callable[[str], str]) -> str:
        """What the model reads. `prompt`: the template that a profile has for a purpose."""

    def problem(self, answer: T) -> str | None:
        """What makes an answer of the right form unusable."""
        return None


class Respondent(Backend, Protocol):
    """A chat model that answers questions."""

    async def ask(self, question: Question[T]) -> T:
        """Raises UnusableAnswerError: there is no answer of the question's form."""


def image_hashes(images: Iterable[EncodedImage | None]) -> list[str | None]:
    return [image.sha256 if image else None for image in images]


@dataclass(frozen=True)
class Topic:
    """A sub-category whose prompts draw from the bank."""

    title: str
    description: str


@dataclass(frozen=True)
class TermKind:
    """A kind of terms of a bank, with the present ones."""

    name: str
    terms: tuple[str, ...]


@dataclass(frozen=True)
class ProposedTerm:
    """A term as the model wrote it. `countable`: it has a plural, and takes `a` or `an`."""

    kind: str
    term: str
    countable: bool


@dataclass(frozen=True)
class Proposals:
    terms: tuple[ProposedTerm, ...]
    reasoning: str = ""


class TermAnswer(AnswerItem):
    kind: str
    term: str
    countable: bool


class ExpansionAnswer(StructuredAnswer):
    terms: list[TermAnswer]

    def value(self) -> Proposals:
        terms = tuple(ProposedTerm(**term.model_dump()) for term in self.terms)
        return Proposals(terms, self.reasoning)


@dataclass(frozen=True)
class BankQuestion(Question[Proposals]):
    """Which terms a bank lacks. `count`: new terms requested, over all of its kinds."""

    role = "expander"
    answer_type = Proposals
    form = ExpansionAnswer

    bank: str
    topics: tuple[Topic, ...]
    kinds: tuple[TermKind, ...]
    count: int

    @property
    def content(self) -> dict[str, Any]:
        return asdict(self)

    def text(self, prompt: Callable[[str], str]) -> str:
        return render(prompt("expander"), **vars(self)).text


@dataclass(frozen=True)
class Rubric:
    """Criteria, each answered by yes or no, that what a request leads to must meet.

    `image_count`: how many images the request asks for; None: it leaves that open.
    """

    image_criteria: tuple[str, ...]
    text_criteria: tuple[str, ...] = ()
    image_count: int | None = None

    @property
    def criteria(self) -> tuple[str, ...]:
        return (*self.image_criteria, *self.text_criteria)


class RubricAnswer(StructuredAnswer):
    image_count: int | None
    picture_criteria: list[str]
    text_criteria: list[str]

    def value(self) -> Rubric:
        pictures, texts = (
            tuple(text for each in criteria if (text := each.strip()))
            for criteria in (self.picture_criteria, self.text_criteria)
        )
        if not pictures and not texts:
            raise AnswerFormatError("there is no criterion in it")
        return Rubric(pictures, texts, self.image_count)


@dataclass(frozen=True)
class RubricQuestion(Question[Rubric]):
    """Which criteria what a request leads to must meet."""

    role = "rubric_writer"
    answer_type = Rubric
    form = RubricAnswer

    request: PlanRequest

    @property
    def images(self) -> tuple[EncodedImage, ...]:
        return self.request.images

    @property
    def content(self) -> dict[str, Any]:
        return {"text": self.request.text, "images": image_hashes(self.images)}

    def text(self, prompt: Callable[[str], str]) -> str:
        return render(prompt("rubric"), request=_tagged(self.request)).text


@dataclass(frozen=True)
class Judgement:
    """Which criteria are met, in their order."""

    met: tuple[bool, ...]
    reasoning: str = ""


class CriterionAnswer(AnswerItem):
    number: int
    met: bool


class JudgementAnswer(StructuredAnswer):
    answers: list[CriterionAnswer]

    def value(self) -> Judgement:
        """The answers in the order of their numbers, each of which occurs once."""
        met = {answer.number: answer.met for answer in self.answers}
        if sorted(met) != list(range(1, len(self.answers) + 1)):
            raise AnswerFormatError("its criteria are not numbered from 1, each once")
        return Judgement(tuple(met[number] for number in sorted(met)), self.reasoning)


@dataclass(frozen=True)
class _CriteriaQuestion(Question[Judgement]):
    """An answer that leaves criteria out is unusable: none is taken as met, or as not met."""

    role = "judge"
    answer_type = Judgement
    form = JudgementAnswer

    def problem(self, answer: Judgement) -> str | None:
        count = len(self.content["criteria"])
        if len(answer.met) == count:
            return None
        return f"{len(answer.met)} answers to {count} criteria"


@dataclass(frozen=True)
class PlanJudgement(_CriteriaQuestion):
    """Which criteria are met if every step of a plan is carried out as it says."""

    request: PlanRequest
    plan: Plan
    criteria: Sequence[str]

    @property
    def images(self) -> tuple[EncodedImage, ...]:
        return self.request.images

    @property
    def content(self) -> dict[str, Any]:
        return {
            "text": self.request.text,
            "images": image_hashes(self.images),
            "plan": [asdict(step) for step in self.plan.steps],
            "texts": [step.text for step in self.plan.steps],
            "criteria": list(self.criteria),
        }

    def text(self, prompt: Callable[[str], str]) -> str:
        request, steps = _tagged(self.request), [_escaped(step) for step in self.plan.steps]
        criteria = [escape_tags(criterion) for criterion in self.criteria]
        return render(prompt("judge_plan"), request=request, steps=steps, criteria=criteria).text


@dataclass(frozen=True)
class OutcomeJudgement(_CriteriaQuestion):
    """Which criteria the images and texts of an outcome, whose plan was read, meet."""

    outcome: RequestOutcome
    criteria: Sequence[str]

    @property
    def _steps(self) -> tuple[PlanStep, ...]:
        return self.outcome.plan.steps if self.outcome.plan else ()

    @property
    def images(self) -> tuple[EncodedImage, ...]:
        drawn = dict(self.outcome.images)
        shown = (drawn[step.step_number] for step in self._steps if step.step_number in drawn)
        return (*self.outcome.request.images, *shown)

    @property
    def content(self) -> dict[str, Any]:
        request, drawn = self.outcome.request, self.outcome.images
        return {
            "text": request.text,
            "images": image_hashes((*request.images, *(image for _, image in drawn))),
            "image_steps": [number for number, _ in drawn],
            "texts": [[step.step_number, step.text or None] for step in self._steps],
            "criteria": list(self.criteria),
        }

    def text(self, prompt: Callable[[str], str]) -> str:
        drawn = {number for number, _ in self.outcome.images}
        request = _tagged(self.outcome.request)
        parts = [
            {"text": escape_tags(step.text), "drawn": step.step_number in drawn}
            for step in self._steps
        ]
        criteria = [escape_tags(criterion) for criterion in self.criteria]
        return render(prompt("judge_outcome"), request=request, parts=parts, criteria=criteria).text


@dataclass(frozen=True)
class TextAnswer:
    """An answer in words, which who asked reads."""

    text: str


@dataclass(frozen=True)
class TextQuestion(Question[TextAnswer]):
    """A benchmark's question about images, which its text names [image 1], [image 2] ...

    `unreadable`: the model's earlier answer, in which nothing could be read.
    """

    role = "benchmark_judge"
    answer_type = TextAnswer

    question: str
    pictures: Sequence[EncodedImage] = ()
    unreadable: str | None = None

    @property
    def images(self) -> tuple[EncodedImage, ...]:
        return tuple(self.pictures)

    @property
    def content(self) -> dict[str, Any]:
        images = image_hashes(self.images)
        return {"text": self.question, "images": images, "unreadable": self.unreadable}

    def text(self, prompt: Callable[[str], str]) -> str:
        """The images follow the text, each after its name."""
        names = (f"[image {number}]\n{IMAGE}" for number in range(1, len(self.images) + 1))
        return "\n\n".join([escape_tags(self.question), *names])


def _tagged(request: PlanRequest) -> str:
    return insert_image_tags(request.text, len(request.images))


def _escaped(step: PlanStep) -> dict[str, Any]:
    fields = {**vars(step), "text": step.text}
    return {n: escape_tags(v) if isinstance(v, str) else v for n, v in fields.items()}
