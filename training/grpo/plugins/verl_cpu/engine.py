"""Registers FSDP2 over gloo as the CPU's training engine, and the batched rollout server.

Two of verl 0.9.1's own functions assume an accelerator and have no switch for it; they are
replaced here, and nowhere else.
"""

from typing import Any

from verl.utils import distributed
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry


def register(rollout: str) -> None:
    """Make verl find the engine for the device `cpu`, and the rollout by its name."""
    _use_one_backend()
    _keep_the_reference_in_place()
    kind = {"model_type": "language_model", "device": ["cpu"], "vendor": "cpu"}
    engine = EngineRegistry.register(backend=["fsdp", "fsdp2"], **kind)
    engine(transformer_impl.FSDPEngineWithLMHead)
    base._ROLLOUT_REGISTRY[rollout, "async"] = f"{__package__}.rollout.BatchedAdapter"
    RolloutReplicaRegistry.register(rollout, _replica)


def _replica() -> type[RolloutReplica]:
    from .rollout import BatchedReplica

    return BatchedReplica


def _use_one_backend() -> None:
    """verl asks for "cpu:gloo,<device>:<backend>", which names the device twice on a CPU."""
    initialize = distributed.initialize_global_process_group_ray

    def initialized(timeout_second: int | None = None, backend: str | None = None) -> None:
        initialize(timeout_second, backend or "cpu:gloo")

    distributed.initialize_global_process_group_ray = initialized


def _keep_the_reference_in_place() -> None:
    """verl offloads the reference policy through pinned memory, which needs an accelerator."""

    def in_place(**_kwargs: Any) -> None:
        return None

    transformer_impl.CPUOffloadPolicy = in_place
