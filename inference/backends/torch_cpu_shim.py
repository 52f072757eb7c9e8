"""Make torchvision and torchaudio importable beside a CPU build of torch.

Their wheels link CUDA. Declaring torchvision's missing operators before it is imported is enough;
torchaudio, which some trainers import and never use, is replaced by an empty module. Does nothing
on a GPU build. Standard library only: trainer environments get a copy of this very file.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_OPERATORS = ("nms", "qnms")
_declared: list[Any] = []


def install() -> None:
    """Hook the imports of torchvision and torchaudio, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _built_for_cpu() -> bool:
    import torch

    return torch.version.cuda is None and getattr(torch.version, "hip", None) is None


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in ("torchvision", "torchaudio"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if not (spec and spec.loader and _built_for_cpu()):
            return spec
        if name == "torchaudio":
            return ModuleSpec(name, _Empty(), is_package=True)
        spec.loader = _Declaring(spec.loader)
        return spec


class _Declaring(importlib.abc.Loader):
    """Declares torchvision's operators just before it is executed."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if not _declared:
            _declare()
        self._inner.exec_module(module)


def _declare() -> None:
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for operator in _OPERATORS:
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)


class _Empty(importlib.abc.Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__version__ = "0.0.0"  # type: ignore[attr-defined]
