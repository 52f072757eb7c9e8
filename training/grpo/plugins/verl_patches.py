"""Functions of verl 0.9.1 that fail, or take too much memory, replaced.

- Batches whose sequences are all equally long, such as rollouts that were all cut off: positions of
  Qwen-VL, (4, tokens) a sequence, are put into a jagged tensor by `torch.nested.as_nested_tensor`,
  which takes the first dimension for the ragged one where no length differs, and verl then reads
  the last one as ragged. Here the last one is taken.
- Logits of long sequences, 1.2 billion for 8,000 tokens at a vocabulary of 151,936: without flash
  attention verl ignores `entropy_from_logits_with_chunking`; its fused kernels multiply bfloat16
  activations by the float32 weights of FSDP, which fails in the backward pass, outside of autocast.

Imported by VERL_USE_EXTERNAL_MODULES=verl_patches, in the trainer's interpreter only.
"""

from typing import Any

import torch
from torch import Tensor
from verl.utils import torch_functional
from verl.utils.experimental.torch_functional import FusedLinearForPPO

_as_nested_tensor = torch.nested.as_nested_tensor
_in_chunks = torch_functional.entropy_from_logits_with_chunking
_forward = FusedLinearForPPO.forward


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


def entropy_from_logits(logits: Tensor) -> Tensor:
    """Entropy of (..., vocabulary) logits, 2,048 distributions at a time."""
    entropy: Tensor = _in_chunks(logits.flatten(0, -2))
    return entropy.view(logits.shape[:-1])


def forward(
    self: Any, hidden_states: Tensor, vocab_weights: Tensor, input_ids: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """verl's own, with the weights in the precision of the activations."""
    weights = vocab_weights.to(hidden_states.dtype)
    log_probs, entropy = _forward(self, hidden_states, weights, input_ids, temperature)
    return log_probs, entropy


torch.nested.as_nested_tensor = as_nested_tensor
torch_functional.entropy_from_logits = entropy_from_logits
FusedLinearForPPO.forward = forward
