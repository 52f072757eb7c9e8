"""Utilisation of the generator by the reward service: all rollouts of a step at once."""

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import ClientSession
from PIL import Image

from inference.backends.sketch.backend import SketchCritic, SketchPlanner
from inference.calls.ask import ModelCalls
from inference.roles import Roles, Score
from schemas.curation import Evaluation
from training.rewards.critic import CriticReward, CriticState
from training.rewards.reward import RewardSettings
from training.rewards.service import RewardAddress, RewardRequest, RewardService, serve_rewards
from warehouse import EncodedImage, Home

DRAW_SECONDS, SLOTS = 0.050, 4
ROLLOUTS = 512
FREE_ROLLOUTS = 256

MEANING = {
    "rewards_generator_utilisation": (
        f"rewards a second over HTTP, relative to what {SLOTS} slots of a 50 ms generator allow, "
        f"{ROLLOUTS} rollouts at once",
        ">= 0.9",
    ),
    "rewards_overhead_ms": ("CPU of service and server per reward, without drawing", ""),
}


@dataclass(frozen=True)
class SimulatedBackend:
    """Draws in a fixed time, a different image for every prompt; gives top grades immediately."""

    seconds: float
    backend: str = "simulated"
    model: str = "1"

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        await asyncio.sleep(self.seconds)
        # Decoders ignore what follows the end of a PNG: other bytes, the same pixels.
        return EncodedImage(EncodedImage.white((2, 2)).data + prompt.encode())

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        return Score(10.0, 10.0, 10.0, 10.0)


def generator_utilisation() -> float:
    """Rewards per second, relative to what the generator's slots alone allow."""
    start = time.perf_counter()
    _reward(ROLLOUTS, DRAW_SECONDS)
    return ROLLOUTS * DRAW_SECONDS / SLOTS / (time.perf_counter() - start)


def overhead_milliseconds() -> float:
    """CPU time per reward of reading, journal, image store and both ends of HTTP."""
    start = time.process_time()
    _reward(FREE_ROLLOUTS, 0.0)
    return 1000 * (time.process_time() - start) / FREE_ROLLOUTS


def measure() -> dict[str, float]:
    """Every number by name."""
    overhead_milliseconds()  # imports and caches
    return {
        "rewards_generator_utilisation": generator_utilisation(),
        "rewards_overhead_ms": overhead_milliseconds(),
    }


def _reward(rollouts: int, seconds: float) -> None:
    """The rewards of a step whose rollouts all reject, each with a different prompt."""
    with tempfile.TemporaryDirectory() as folder:
        home, actor = Home(folder), SimulatedBackend(seconds)
        settings = RewardSettings(concurrency=SLOTS)
        roles = Roles(SketchPlanner(), actor, SketchCritic(), actor)
        with (
            ModelCalls(home, "bench", "bench", roles, settings.limits) as calls,
            home.journal("rollouts", "bench") as journal,
        ):
            service = RewardService(
                CriticReward(calls, lambda _: actor, settings), "bench", journal
            )
            asyncio.run(
                _step(
                    service,
                    home.images.put(EncodedImage.of(Image.new("RGB", (2, 2), "grey"))),
                    rollouts,
                )
            )


async def _step(service: RewardService, origin: str, rollouts: int) -> None:
    async with serve_rewards(service) as address, ClientSession() as client:
        requests = [_request(origin, number) for number in range(rollouts)]
        await asyncio.gather(*(_post(client, address, request) for request in requests))


async def _post(client: ClientSession, address: RewardAddress, request: RewardRequest) -> None:
    headers = {"Authorization": f"Bearer {address.token}"}
    async with client.post(
        address.url, json=request.model_dump(mode="json"), headers=headers
    ) as answer:
        body = await answer.json()
        if body.get("status") != "scored":
            raise RuntimeError(f"a rollout of the benchmark got no reward: {body}")


def _request(origin: str, number: int) -> RewardRequest:
    verdict = {"previous_step_success": False, "refine_prompt": f"Add a cat, as in try {number}."}
    state = CriticState(
        origin_prompt="Add a cat.",
        rewritten_prompt="",
        origin_image=origin,
        evaluation=Evaluation(success=False, semantics=3, quality=10),
    )
    response = f"<think>no cat</think><answer>{json.dumps(verdict)}</answer>"
    return RewardRequest(step=1, row_id=f"row-{number // 8}", response=response, state=state)
