"""Registers FSDP2 over gloo as the CPU's training engine, and the batched rollout server.

Two functions of verl 0.9.1 assume an accelerator, without an option; they are replaced here.
"""

from verl.utils import distributed
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry


def register(rollout: str) -> None:
    """Register the engine for the device `cpu`, and the rollout by its name."""
    _use_gloo_only()
    _disable_reference_offload()
    kind = {"model_type": "language_model", "device": ["cpu"], "vendor": "cpu"}
    engine = EngineRegistry.register(backend=["fsdp", "fsdp2"], **kind)
    engine(transformer_impl.FSDPEngineWithLMHead)
    base._ROLLOUT_REGISTRY[rollout, "async"] = f"{__package__}.rollout.BatchedAdapter"
    RolloutReplicaRegistry.register(rollout, _replica)


def _replica() -> type[RolloutReplica]:
    from .rollout import BatchedReplica

    return BatchedReplica


def _use_gloo_only() -> None:
    """verl asks for "cpu:gloo,<device>:<backend>", which names the device twice on a CPU."""
    initialize = distributed.initialize_global_process_group_ray

    def initialize_with_gloo(timeout_second: int | None = None, backend: str | None = None) -> None:
        initialize(timeout_second, backend or "cpu:gloo")

    distributed.initialize_global_process_group_ray = initialize_with_gloo


def _disable_reference_offload() -> None:
    """verl offloads the reference policy through pinned memory, which needs an accelerator."""
    transformer_impl.CPUOffloadPolicy = lambda **_: None
