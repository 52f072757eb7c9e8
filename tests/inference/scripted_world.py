"""Small backends with scripted answers, and prompts and plans for them."""

import asyncio
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from PIL import Image

from inference.calls.hashing import stable_hash
from inference.events import plan_rows
from inference.roles import Plan, PlanRequest, PlanStep, Roles, Score, Verdict
from schemas.prompts import PromptRow
from schemas.trajectories import PlanRow
from warehouse import EncodedImage

SHARD = "test-0000"
ACCEPT = Verdict(True, "", "as asked")


def tiny_image(*content: object) -> EncodedImage:
    """Four pixels of a hash of `content`."""
    buffer = io.BytesIO()
    pixels = bytes.fromhex(stable_hash(*content))[:12]
    Image.frombytes("RGB", (2, 2), pixels).save(buffer, "PNG")
    return EncodedImage(buffer.getvalue())


@dataclass
class Scripted:
    """A backend's name, and the calls it received."""

    backend: str = "scripted"
    model: str = "1"
    calls: list[tuple] = field(default_factory=list)


@dataclass
class ScriptedPlanner(Scripted):
    answer: Callable[[PlanRequest], Plan] = lambda request: plan("Draw " + request.text)

    async def plan(self, request: PlanRequest) -> Plan:
        self.calls.append((request.text, tuple(image.sha256 for image in request.images)))
        return self.answer(request)


@dataclass
class ScriptedGenerator(Scripted):
    """The image depends on (prompt, sources, seed); `fail` may raise first."""

    fail: Callable[[str], None] = lambda prompt: None
    finished_prompts: list[str] = field(default_factory=list)

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        sources = tuple(image.sha256 for image in images)
        self.calls.append((prompt, sources, seed))
        await asyncio.sleep(0)
        self.fail(prompt)
        self.finished_prompts.append(prompt)
        return tiny_image(prompt, sources, seed)


@dataclass
class ScriptedCritic(Scripted):
    """Returns (or raises) the goal's verdicts in turn, then accepts."""

    verdicts: dict[str, list[Verdict | Exception]] = field(default_factory=dict)

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        earlier = sum(call[2] == instruction for call in self.calls)
        self.calls.append((before and before.sha256, after.sha256, instruction, prompt))
        script = self.verdicts.get(instruction, [])
        answer = script[earlier] if earlier < len(script) else ACCEPT
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class ScriptedScorer(Scripted):
    """Returns (or raises) grades in turn, then tens."""

    grades: list[float | Exception] = field(default_factory=list)

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        grade = self.grades[len(self.calls)] if len(self.calls) < len(self.grades) else 10.0
        self.calls.append((before and before.sha256, after.sha256, instruction))
        if isinstance(grade, Exception):
            raise grade
        return Score(grade, 10.0, grade, 10.0)


def roles(**overrides: object) -> Roles:
    defaults = {
        "planner": ScriptedPlanner(),
        "generator": ScriptedGenerator(),
        "critic": ScriptedCritic(),
        "scorer": ScriptedScorer(),
    }
    return Roles(**(defaults | overrides))


def reject(refined: str) -> Verdict:
    return Verdict(False, refined, "not as asked")


def prompt_row(name: str = "p1", images: Sequence[str] = ()) -> PromptRow:
    return PromptRow(
        prompt_id=name,
        pack="test",
        category="c",
        subcategory="s",
        template_id="t",
        text=f"a plan of {name}",
        terms=[],
        suffix=None,
        input_images=list(images),
        shard=SHARD,
        split="train",
    )


def plan(*prompts: str | None) -> Plan:
    """A plan with these step prompts; None is a text-only step."""
    steps = [
        PlanStep(number, f"step {number}", f"do {number}", text, f"words {number}")
        for number, text in enumerate(prompts, start=1)
    ]
    return Plan(tuple(steps), "because")


def plan_rows_for(prompt: PromptRow, *prompts: str | None) -> list[PlanRow]:
    return plan_rows(prompt, plan(*prompts), "scripted/1")


def shard_inputs(names: Iterable[str], *steps: str | None) -> tuple[list[PromptRow], list[PlanRow]]:
    """Prompts, and their plans, whose step prompts begin with the prompt's name."""
    prompts = [prompt_row(name) for name in names]
    plans = (plan_rows_for(p, *(s and f"{p.prompt_id} {s}" for s in steps)) for p in prompts)
    return prompts, list(chain.from_iterable(plans))
