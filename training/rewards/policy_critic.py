"""A policy in the place of the critic: how it is asked about an image, and the loop with its
answers, as the trainers of an environment and the rewards of episodes play it."""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, replace

from inference.agent_prompts.formatting import parse_verdict
from inference.agent_prompts.templates import critic_prompt
from inference.calls.hashing import stable_hash
from inference.events import ImageGenerated
from inference.loop import Loop, drawn_images
from inference.roles import Verdict
from warehouse import EncodedImage


class PolicyCritic:
    """The critic of a trajectory that a policy plays: its next answer is there already.

    Its model is named by the answer, so that equal answers share a line of the journal.
    """

    backend = "policy"
    answer = ""

    @property
    def model(self) -> str:
        return stable_hash("policy", self.answer)

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        return parse_verdict(self.answer)


@dataclass(frozen=True)
class CriticQuestion:
    """How the critic is asked about an image.

    Args:
        canvas_size: of the white image before the first one; None: that of the image.
    """

    agent_prompt: str
    canvas_size: int | None = None

    def about(self, draw: ImageGenerated) -> tuple[str, tuple[EncodedImage, EncodedImage]]:
        """The prompt, with `<image>` for each of the two images: before and after the step."""
        before, after = draw.source, draw.image
        if before is None:
            size = self.canvas_size
            before = EncodedImage.white((size, size) if size else after.image.size)
        rewritten = draw.prompt if draw.iteration else ""
        question = critic_prompt(draw.step.prompt or "", rewritten, self.agent_prompt)
        return question.text, (before, after)


class _UnansweredError(Exception):
    """The policy has not judged an image yet."""

    def __init__(self, draw: ImageGenerated) -> None:
        super().__init__("the policy has no answer to an image: its prompt may be too long")
        self.draw = draw


async def drawn_by_policy(
    loop: Loop, answers: Iterable[str]
) -> tuple[dict[int, EncodedImage], int]:
    """As `drawn_images`, judged by a policy's answers to one image after the other.

    An image that none is left for is an error, by which `next_question` knows it.
    """
    critic, given = PolicyCritic(), iter(answers)

    def judge(draw: ImageGenerated) -> None:
        answer = next(given, None)
        if answer is None:
            raise _UnansweredError(draw)
        critic.answer = answer

    calls = loop.calls.with_roles(replace(loop.calls.roles, critic=critic))
    return await drawn_images(replace(loop, calls=calls), judge)


async def next_question(
    episode: Awaitable[object], question: CriticQuestion
) -> tuple[str, tuple[EncodedImage, ...]] | None:
    """What the policy is asked next in an episode that is played by its answers so far, as
    `CriticQuestion.about`; None: the episode is over."""
    try:
        await episode
    except _UnansweredError as waiting:
        return await asyncio.to_thread(question.about, waiting.draw)
    return None
