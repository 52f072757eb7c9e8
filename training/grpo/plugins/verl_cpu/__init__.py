"""verl on a CPU: a platform of one device without memory of its own, FSDP2 over gloo as the engine,
and a batched rollout server.

verl imports it in every one of its processes (VERL_USE_EXTERNAL_MODULES=verl_cpu,verl_masking and
VERL_PLATFORM=cpu); the configuration then says `trainer.device=cpu` and
`actor_rollout_ref.rollout.name=batched_cpu`. It runs in the trainer's interpreter only.

All is registered with verl's own registries. Two functions of verl 0.9.1 assume an accelerator,
without an option; they are replaced here.
"""

import resource
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

NAME = "batched_cpu"


def _always(value: Any) -> Callable[..., Any]:
    """A method of any arguments with one answer."""
    return lambda *_args, **_kwargs: value


# Housekeeping of an accelerator, which a CPU does not need.
_no_operation = _always(None)
_HOUSEKEEPING = (
    "empty_cache",
    "ipc_collect",
    "manual_seed",
    "manual_seed_all",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_device",
    "set_per_process_memory_fraction",
    "synchronize",
)
_DEVICE = SimpleNamespace(
    **dict.fromkeys(_HOUSEKEEPING, _no_operation),
    **dict.fromkeys(("memory_allocated", "memory_reserved", "max_memory_reserved"), _always(0)),
    max_memory_allocated=lambda *_, **__: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    mem_get_info=_always((0, 0)),
    is_available=_always(False),
    device_count=_always(1),
    current_device=_always(torch.device("cpu")),
    get_device_name=_always("CPU"),
    get_rng_state=torch.get_rng_state,
    set_rng_state=torch.set_rng_state,
    Stream=torch.cpu.Stream,
    current_stream=torch.cpu.current_stream,
    stream=torch.cpu.stream,
)


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """One CPU device a worker; used only with VERL_PLATFORM=cpu."""

    device_name = vendor_name = "cpu"
    device_module = _DEVICE
    is_available = _always(True)
    is_platform_available = _always(False)
    current_device = _always(torch.device("cpu"))
    device_count = _always(1)
    get_device_capability = _always((None, None))
    communication_backend_name = _always("gloo")
    visible_devices_envvar = _always("CUDA_VISIBLE_DEVICES")
    ray_resource_name = _always("GPU")  # logical slots, declared by ray_init.num_gpus
    ray_noset_envvars = _always([])
    is_ipc_supported = _always(False)
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    nvtx_range = staticmethod(nullcontext)
    set_device = synchronize = set_allocator_settings = empty_cache = _no_operation
    profiler_start = profiler_stop = cudart = _no_operation


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


_register_engine()
