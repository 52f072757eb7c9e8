"""Attention of one new token over a long cache, without copying the cache.

Where several query heads share a key head, transformers repeats the keys and values for the CPU,
which costs more than the attention itself. For one new token, the heads that share a key are rows
of one query instead. Registered with transformers as `grouped_sdpa`.
"""

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "grouped_sdpa"


def grouped_sdpa(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention (batch, new tokens, heads, size) of a query (batch, heads, new tokens, size)."""
    batch, heads, new, size = query.shape
    shared = key.shape[1]
    if new != 1 or shared == heads:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    out = nn.functional.scaled_dot_product_attention(
        query.view(batch, shared, heads // shared, size),
        key,
        value,
        attn_mask=attention_mask,
        scale=options.get("scaling"),
    )
    return out.reshape(batch, 1, heads, size), None


def register() -> None:
    AttentionInterface.register(NAME, grouped_sdpa)
    AttentionMaskInterface.register(NAME, sdpa_mask)
