"""verl on a CPU: platform, FSDP2 over gloo as the engine, and a batched rollout server.

verl imports it in every one of its processes (VERL_USE_EXTERNAL_MODULES=verl_cpu,verl_masking and
VERL_PLATFORM=cpu); the configuration then says `trainer.device=cpu` and
`actor_rollout_ref.rollout.name=batched_cpu`. It runs in the trainer's interpreter only.

All is registered with verl's own registries. Two functions of verl 0.9.1 assume an accelerator,
without an option; they are replaced here.
"""

from typing import Any

from . import platform

NAME = "batched_cpu"


def _register_engine() -> None:
    # verl's engines use the platform when they are imported.
    from verl.utils import distributed
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp import transformer_impl
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    initialize = distributed.initialize_global_process_group_ray

    def initialize_with_gloo(timeout_second: int | None = None, backend: str | None = None) -> None:
        # verl asks for "cpu:gloo,<device>:<backend>", which names the device twice on a CPU.
        initialize(timeout_second, backend or "cpu:gloo")

    distributed.initialize_global_process_group_ray = initialize_with_gloo
    # verl offloads the reference policy through pinned memory, which needs an accelerator.
    transformer_impl.CPUOffloadPolicy = lambda **_: None
    kind = {"model_type": "language_model", "device": ["cpu"], "vendor": "cpu"}
    engine = EngineRegistry.register(backend=["fsdp", "fsdp2"], **kind)
    engine(transformer_impl.FSDPEngineWithLMHead)
    base._ROLLOUT_REGISTRY[NAME, "async"] = f"{__package__}.rollout.BatchedAdapter"
    RolloutReplicaRegistry.register(NAME, _replica)


def _replica() -> Any:
    from .rollout import BatchedReplica

    return BatchedReplica


platform.register()
_register_engine()
