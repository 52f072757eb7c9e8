"""Agent loops that take a rollout without a reward out of every loss, and one that plays episodes.

verl's `agent_loop_manager_class`. A rollout's response mask is also its loss mask: where it is 0,
there is no policy gradient, none of the divergence from the parent, and no token in the number that
both are divided by.
"""

import math
import re
from io import BytesIO
from typing import Any

import ray
from PIL import Image
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.utils.import_utils import load_module

# An actor class of Ray cannot be inherited from, only the class that it was made of.
_Worker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class.__ray_actor_class__
_IMAGE = "<image>"


@ray.remote
class MaskingAgentLoopWorker(_Worker):
    """verl's own worker; tokens of rollouts whose reward is NaN do not count."""

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        await super()._compute_score(outputs, kwargs)
        last = outputs[-1].reward_score
        if last is not None and math.isnan(last):
            for output in outputs:
                output.response_mask = [0] * len(output.response_mask)


class MaskingAgentLoopManager(AgentLoopManagerTQ):
    """verl's own manager of these workers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = MaskingAgentLoopWorker


class EpisodeAgentLoop(SingleTurnAgentLoop):
    """The policy answers a row, then what the reward service asks next, until the episode is over
    (named by `agent_loops.yaml`).

    Each answer is a sequence of its own, as at inference; verl gives all of an episode the
    advantage of its reward.
    """

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[Any]:
        function = self.config.reward.custom_reward_function
        client, known = load_module(function.path), function.reward_kwargs
        address, limits = known.address, {"max_pixels": known.image_max_pixels}
        truth, info = row["reward_model"]["ground_truth"], dict(row["extra_info"])
        messages, answers = list(row["raw_prompt"]), list[str]()
        outputs = list[Any]()
        while messages:
            try:
                output = await super().run(sampling_params, **{**row, "raw_prompt": messages})
            except ValueError:  # verl's, of a prompt that is too long: without an answer to it
                if not outputs:  # the episode is masked
                    raise
                break
            outputs.append(output)
            answers.append(self.tokenizer.decode(output.response_ids, skip_special_tokens=True))
            info |= output.extra_fields
            prompt, images = await client.next_turn(answers, truth, info, address)
            messages = _asked(prompt, images, messages, limits)
        numbers = await client.reward_episode(answers, truth, info, address)
        outputs[-1].reward_score = math.nan if numbers["masked"] else numbers["score"]
        outputs[-1].extra_fields["reward_extra_info"] = numbers
        return outputs


def _asked(
    prompt: str, images: list[bytes], before: list[Any], limits: dict[str, int]
) -> list[Any]:
    """The messages of a turn: those before with another user's, its images shrunk to the limits."""
    if not prompt:
        return []
    decoded = iter([Image.open(BytesIO(data)).convert("RGB") for data in images])
    parts = [part for part in re.split(f"({_IMAGE})", prompt) if part]
    content = [
        {"type": "image", "image": next(decoded), **limits}
        if part == _IMAGE
        else {"type": "text", "text": part}
        for part in parts
    ]
    return [*before[:-1], {**before[-1], "content": content}]
