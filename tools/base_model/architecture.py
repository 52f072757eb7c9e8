"""A tiny Qwen3-VL: the classes of the 8 B model, with 3.6 million parameters."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from inference.backends import torch_cpu_shim
from schemas.yaml_config import ConfigModel

from .vocabulary import CHAT_TEMPLATE

if TYPE_CHECKING:
    from transformers import (
        Qwen2Tokenizer,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
    )

PATCH, MERGE = 16, 2
_HEAD_SIZE = 32
_CONTEXT_LENGTH = 4096


class Architecture(ConfigModel):
    """Sizes of a tiny Qwen3-VL; the defaults make 3.6 million parameters."""

    hidden: int = Field(192, multiple_of=32, description="Width of the language model")
    layers: int = Field(5, ge=1, description="Layers of the language model")
    feed_forward: int = Field(512, ge=32, description="Width of its feed-forward layers")
    vision_hidden: int = Field(128, multiple_of=32, description="Width of the vision tower")
    vision_layers: int = Field(2, ge=1, description="Layers of the vision tower")
    vocabulary: int = Field(2048, ge=512, description="Entries that the BPE is trained to")
    image_pixels: int = Field(
        96 * 96, description="Largest image in pixels; a visual token covers 32 x 32"
    )


def build_model(
    sizes: Architecture, tokenizer: "Qwen2Tokenizer", seed: int
) -> "Qwen3VLForConditionalGeneration":
    torch_cpu_shim.install()
    import torch
    from transformers import GenerationConfig, Qwen3VLForConditionalGeneration

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(_config(sizes, tokenizer))
    ends = [_id(tokenizer, "<|im_end|>"), _id(tokenizer, "<|endoftext|>")]
    model.generation_config = GenerationConfig(
        eos_token_id=ends, pad_token_id=ends[1], do_sample=False
    )
    return model


def build_processor(sizes: Architecture, tokenizer: "Qwen2Tokenizer") -> "Qwen3VLProcessor":
    """Cuts images of at most `image_pixels` into patches; a video processor is mandatory."""
    torch_cpu_shim.install()
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    smallest = (PATCH * MERGE) ** 2
    images = Qwen2VLImageProcessor(
        patch_size=PATCH,
        temporal_patch_size=2,
        merge_size=MERGE,
        size={"shortest_edge": smallest, "longest_edge": sizes.image_pixels},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    videos = Qwen3VLVideoProcessor(
        size={"shortest_edge": 4 * smallest, "longest_edge": 8 * sizes.image_pixels}
    )
    return Qwen3VLProcessor(images, tokenizer, videos, chat_template=CHAT_TEMPLATE)


def _config(sizes: Architecture, tokenizer: "Qwen2Tokenizer") -> "Qwen3VLConfig":
    from transformers import Qwen3VLConfig

    vision = {
        "depth": sizes.vision_layers,
        "hidden_size": sizes.vision_hidden,
        "intermediate_size": 2 * sizes.vision_hidden,
        "num_heads": sizes.vision_hidden // 32,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
        "out_hidden_size": sizes.hidden,
        "num_position_embeddings": 36,
        "deepstack_visual_indexes": [sizes.vision_layers - 1],
    }
    return Qwen3VLConfig(
        tie_word_embeddings=True,
        image_token_id=_id(tokenizer, "<|image_pad|>"),
        video_token_id=_id(tokenizer, "<|video_pad|>"),
        vision_start_token_id=_id(tokenizer, "<|vision_start|>"),
        vision_end_token_id=_id(tokenizer, "<|vision_end|>"),
        text_config=_text_config(sizes, tokenizer),
        vision_config=vision,
    )


def _text_config(sizes: Architecture, tokenizer: "Qwen2Tokenizer") -> dict[str, Any]:
    heads = sizes.hidden // _HEAD_SIZE
    return {
        "vocab_size": -(-len(tokenizer) // 64) * 64,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.feed_forward,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": max(1, heads // 2),
        "head_dim": _HEAD_SIZE,
        "max_position_embeddings": _CONTEXT_LENGTH,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": _id(tokenizer, "<|im_end|>"),
        "pad_token_id": _id(tokenizer, "<|endoftext|>"),
        # the sections (time, height, width) must sum to half a head's size
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
    }


def _id(tokenizer: "Qwen2Tokenizer", token: str) -> int:
    return tokenizer.get_vocab()[token]
