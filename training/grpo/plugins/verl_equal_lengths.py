"""Batches whose sequences are all equally long, such as rollouts that were all cut off.

verl 0.9.1 fails on them: positions of Qwen-VL, (4, tokens) a sequence, are put into a jagged tensor
by `torch.nested.as_nested_tensor`, which takes the first dimension for the ragged one where no
length differs, and verl then reads the last one as ragged. Here the last one is taken. Imported by
VERL_USE_EXTERNAL_MODULES=verl_equal_lengths, in the trainer's interpreter only.
"""

from typing import Any

import torch
from torch import Tensor

_as_nested_tensor = torch.nested.as_nested_tensor


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Tensor:
    """torch's own, except for a list of matrices of one shape: those are ragged in columns."""
    if layout is not torch.jagged or not _are_equal_matrices(ts):
        return _as_nested_tensor(ts, dtype, device, layout)
    values = torch.cat(list(ts), dim=1).to(device, dtype)
    offsets = torch.arange(len(ts) + 1, device=values.device) * ts[0].shape[1]
    return torch.nested.nested_tensor_from_jagged(values, offsets, jagged_dim=2)


def _are_equal_matrices(tensors: Any) -> bool:
    return (
        isinstance(tensors, list | tuple)
        and len({each.shape for each in tensors if isinstance(each, Tensor)}) == 1
        and all(isinstance(each, Tensor) and each.dim() == 2 for each in tensors)
    )


torch.nested.as_nested_tensor = as_nested_tensor
