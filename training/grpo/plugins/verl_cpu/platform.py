"""The CPU as one of verl's platforms: one device, no memory of its own, gloo between processes."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


def _no_operation(*_args: Any, **_kwargs: Any) -> None:
    """Housekeeping of an accelerator, which a CPU does not need."""


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
    **dict.fromkeys(
        ("memory_allocated", "memory_reserved", "max_memory_reserved"), lambda *_, **__: 0
    ),
    max_memory_allocated=lambda *_, **__: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    mem_get_info=lambda *_: (0, 0),
    is_available=lambda: False,
    device_count=lambda: 1,
    current_device=lambda: torch.device("cpu"),
    get_device_name=lambda *_: "CPU",
    get_rng_state=torch.get_rng_state,
    set_rng_state=torch.set_rng_state,
    Stream=torch.cpu.Stream,
    current_stream=torch.cpu.current_stream,
    stream=torch.cpu.stream,
)


class CpuPlatform(PlatformBase):
    """One CPU device a worker; used only with VERL_PLATFORM=cpu."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _DEVICE

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False

    def current_device(self) -> torch.device:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"  # logical slots, declared by ray_init.num_gpus

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None: ...


def register() -> None:
    PlatformRegistry.register(platform="cpu")(CpuPlatform)
