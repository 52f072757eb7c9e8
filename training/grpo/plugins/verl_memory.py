"""Log-probabilities and entropy of long sequences without copies of all their logits.

A sequence of 8,000 tokens has 1.2 billion logits at a vocabulary of 151,936. Two functions of verl
0.9.1 are replaced: without flash attention it ignores `entropy_from_logits_with_chunking`; and its
fused kernels multiply bfloat16 activations by the float32 weights of FSDP, which fails in the
backward pass, outside of autocast. Imported by VERL_USE_EXTERNAL_MODULES=verl_memory, in the
trainer's interpreter only.
"""

from typing import Any

from torch import Tensor
from verl.utils import torch_functional
from verl.utils.experimental.torch_functional import FusedLinearForPPO

_in_chunks = torch_functional.entropy_from_logits_with_chunking
_forward = FusedLinearForPPO.forward


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


torch_functional.entropy_from_logits = entropy_from_logits
FusedLinearForPPO.forward = forward
