"""Agent loops that take a rollout without a reward out of every loss.

verl's `agent_loop_manager_class`. A rollout's response mask is also its loss mask: where it is 0,
there is no policy gradient, none of the divergence from the parent, and no token in the number that
both are divided by.
"""

import math
from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

# An actor class of Ray cannot be inherited from, only the class that it was made of.
_Worker: Any = AgentLoopWorkerTQ.__ray_metadata__.modified_class.__ray_actor_class__


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
