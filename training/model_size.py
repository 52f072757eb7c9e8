"""Memory and time that models take on GPUs, from their numbers of parameters.

These are estimates from the numbers of bytes that the trainers and servers hold, not measurements;
`P` is the number of parameters. Bytes of a parameter:

| | weights | gradients | copy in single precision | Adam's moments | together |
|---|---|---|---|---|---|
| served, or the base of adapters in SFT | 2 | | | | 2 |
| SFT of all weights, DeepSpeed ZeRO-3 | 2 | 2 | 4 | 8 | 16 |
| GRPO of all weights, FSDP2 in single precision | 4 | 4 | | 8 | 16 |
| adapters, in both | 4 | 4 | | 8 | 16 |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TRAINED_BYTES = 16  # a parameter, with gradients and optimizer
SFT_CHECKPOINT_BYTES = 14  # a parameter: the model (2), its copy (4) and the moments (8)
GRPO_CHECKPOINT_BYTES = 12  # a parameter: the model (4) and the moments (8)
# Operations a second of a GPU: a third of the 989e12 that an H100 has in bfloat16.
_OPERATIONS = 330e12
_BLOCK_BYTES = 2  # of a value in bfloat16
_LOGIT_BYTES = 12  # in bfloat16, in single precision, and the gradients of both


@dataclass(frozen=True)
class ModelSize:
    """Sizes of a language model, with its vision tower if it has one.

    Args:
        cache_width: numbers in one layer's key of a token; its value has as many.
        map_width: inputs and outputs of all linear maps of a layer, added up.
    """

    parameters: int
    layers: int
    width: int
    vocabulary: int
    cache_width: int
    map_width: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "ModelSize":
        """From a `config.json` of the Qwen3 or Qwen3-VL family."""
        text = config.get("text_config", config)
        width, inner = text["hidden_size"], text["intermediate_size"]
        layers = text["num_hidden_layers"]
        head, heads = text["head_dim"], text["num_attention_heads"]
        keys = text["num_key_value_heads"] * head
        maps = [(width, heads * head)] * 2 + [(width, keys)] * 2 + [(width, inner)] * 3
        layer = sum(a * b for a, b in maps) + 2 * width + 2 * head
        tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
        embeddings = text["vocab_size"] * width * (1 if tied else 2)
        vision = _vision_parameters(config["vision_config"]) if "vision_config" in config else 0
        parameters = layers * layer + width + embeddings + vision
        map_width = sum(a + b for a, b in maps)
        return cls(parameters, layers, width, text["vocab_size"], keys, map_width)

    @property
    def weights_bytes(self) -> int:
        """In bfloat16."""
        return _BLOCK_BYTES * self.parameters

    @property
    def cache_bytes(self) -> int:
        """Of a token in a server's cache: a key and a value in every layer, in bfloat16."""
        return 2 * _BLOCK_BYTES * self.layers * self.cache_width

    @property
    def activation_bytes(self) -> int:
        """Of a token in training with gradient checkpointing: of the blocks, and the logits."""
        return self.block_bytes + _LOGIT_BYTES * self.vocabulary

    @property
    def block_bytes(self) -> int:
        """Of a token in training with gradient checkpointing: every layer's input, and one layer's
        own values."""
        return _BLOCK_BYTES * (self.layers * self.width + self.map_width)

    def adapter_parameters(self, rank: int) -> int:
        """Of LoRA on every linear map of the language model."""
        return rank * self.map_width * self.layers

    def sft_gpu_bytes(self, gpus: int, rank: int, tokens: int) -> float:
        """Of each GPU in supervised fine-tuning.

        Args:
            rank: of adapters, beside which every GPU holds the base; 0: all weights, which ZeRO-3
                divides among the GPUs.
            tokens: of a pass on a GPU.
        """
        held = self.weights_bytes + TRAINED_BYTES * self.adapter_parameters(rank)
        state = held if rank else TRAINED_BYTES * self.parameters / gpus
        return state + tokens * self.activation_bytes

    def grpo_state_bytes(self, rank: int, gpus: int = 1) -> float:
        """What FSDP2 divides among GPUs: all that is trained, and with adapters the base in single
        precision."""
        adapters = TRAINED_BYTES * self.adapter_parameters(rank)
        return (4 * self.parameters + adapters if rank else TRAINED_BYTES * self.parameters) / gpus

    def served_gpu_bytes(self, gpus: int, tokens: int) -> float:
        """Of each GPU that shares a copy of the model with the others, with a cache for so many
        tokens: less is refused, more serves more requests at a time."""
        return (self.weights_bytes + tokens * self.cache_bytes) / gpus

    def training_seconds(self, tokens: float, gpus: int, rank: int) -> float:
        """Of so many tokens in supervised fine-tuning, each layer computed twice (gradient
        checkpointing): 8 operations a parameter and token, 6 where the base has no gradients."""
        return (6 if rank else 8) * self.parameters * tokens / (gpus * _OPERATIONS)


KNOWN_SIZES = {
    "Qwen/Qwen3-VL-8B-Instruct": ModelSize(8_767_123_696, 36, 4096, 151_936, 1024, 75_776)
}
"""Of models at Hugging Face, by id: before they are downloaded."""


def picture_seconds(parameters: float, tokens: int, passes: int) -> float:
    """Of a GPU that draws one image: 2 operations a parameter, token and pass.

    Args:
        parameters: of the part that denoises.
        tokens: of the image, the images it is drawn from, and the prompt.
        passes: steps; twice as many where guidance takes a second one.
    """
    return 2 * parameters * tokens * passes / _OPERATIONS


def _vision_parameters(config: Mapping[str, Any]) -> int:
    width, inner = config["hidden_size"], config["intermediate_size"]
    block = 4 * width * width + 2 * width * inner + 9 * width + inner
    patch = config["in_channels"] * config["temporal_patch_size"] * config["patch_size"] ** 2 + 1
    merged, out = config["spatial_merge_size"] ** 2 * width, config["out_hidden_size"]
    merger = (merged + 1) * merged + (merged + 1) * out
    deep = len(config["deepstack_visual_indexes"]) * (merger + 2 * merged)
    embedded = (patch + config["num_position_embeddings"]) * width
    return config["depth"] * block + embedded + merger + 2 * width + deep
