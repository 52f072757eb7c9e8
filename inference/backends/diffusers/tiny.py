"""Pipelines of the real classes with random weights, small enough for a CPU."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = sorted(pre_tokenizers.ByteLevel.alphabet())
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Untrained layers attenuate their input: with this gain prompts and images matter.
GAIN = 1.5


def build(pipeline: str, folder: Path) -> Path:
    """Save a pipeline of a class of diffusers to `folder`."""
    import torch

    torch.manual_seed(0)
    built = BUILDERS[pipeline]()
    for part in (built.transformer, built.vae):
        for weights in part.parameters():
            if weights.dim() > 1:
                torch.nn.init.normal_(weights, std=GAIN / math.sqrt(weights[0].numel()))
    built.save_pretrained(folder)
    return folder


def qwen_image() -> Any:
    import diffusers

    return diffusers.QwenImagePipeline(
        transformer=qwen_transformer(), vae=qwen_vae(), tokenizer=chat_tokenizer(), **qwen_parts()
    )


def qwen_image_edit() -> Any:
    import diffusers

    return _qwen_edit(diffusers.QwenImageEditPipeline)


def qwen_image_edit_plus() -> Any:
    import diffusers

    return _qwen_edit(diffusers.QwenImageEditPlusPipeline)


def _qwen_edit(kind: Callable[..., Any]) -> Any:
    return kind(
        transformer=qwen_transformer(),
        vae=qwen_vae(),
        tokenizer=chat_tokenizer(),
        processor=vision_processor(),
        **qwen_parts(),
    )


def longcat() -> Any:
    import diffusers

    transformer = diffusers.LongCatImageTransformer2DModel(
        in_channels=64,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=16,
        pooled_projection_dim=16,
        axes_dims_rope=[4, 4, 8],
    )
    return diffusers.LongCatImageEditPipeline(
        transformer=transformer,
        vae=flux_vae(latent_channels=16),
        tokenizer=chat_tokenizer(),
        text_processor=vision_processor(),
        **qwen_parts(),
    )


def klein() -> Any:
    import diffusers
    import transformers

    text = transformers.Qwen3Config(
        vocab_size=len(WORDS) + 7,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=28,  # the pipeline uses layers 9, 18 and 27
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
    )
    transformer = diffusers.Flux2Transformer2DModel(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=48,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=False,
    )
    vae = diffusers.AutoencoderKLFlux2(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(4, 4, 4, 4),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=1,
        sample_size=64,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    return diffusers.Flux2KleinPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=vae,
        text_encoder=transformers.Qwen3ForCausalLM(text),
        tokenizer=chat_tokenizer(),
        transformer=transformer,
        is_distilled=True,
    )


def flux() -> Any:
    import diffusers

    return diffusers.FluxPipeline(**flux_parts(in_channels=16))


def kontext() -> Any:
    import diffusers

    return diffusers.FluxKontextPipeline(**flux_parts(in_channels=16))


def fill() -> Any:
    # Latents, those of the masked image (16 each), and the mask: 2x2 patches of 4x4 pixels.
    import diffusers

    return diffusers.FluxFillPipeline(**flux_parts(in_channels=16 + 16 + 64))


def flux_parts(in_channels: int) -> dict[str, Any]:
    import diffusers
    import transformers

    clip = transformers.CLIPTextConfig(
        vocab_size=len(WORDS) + 2,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        projection_dim=16,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    t5 = transformers.T5Config(
        vocab_size=len(WORDS) + 3, d_model=16, d_ff=16, d_kv=8, num_layers=1, num_heads=2
    )
    transformer = diffusers.FluxTransformer2DModel(
        in_channels=in_channels,
        out_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=16,
        pooled_projection_dim=16,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )
    return {
        "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        "vae": flux_vae(latent_channels=4),
        "text_encoder": transformers.CLIPTextModel(clip),
        "tokenizer": clip_tokenizer(),
        "text_encoder_2": transformers.T5EncoderModel(t5),
        "tokenizer_2": t5_tokenizer(),
        "transformer": transformer,
    }


def flux_vae(latent_channels: int) -> Any:
    import diffusers

    return diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(4, 4, 4),
        layers_per_block=1,
        latent_channels=latent_channels,
        norm_num_groups=1,
        sample_size=64,
        scaling_factor=1.0,
        shift_factor=0.0,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )


def qwen_transformer() -> Any:
    import diffusers

    return diffusers.QwenImageTransformer2DModel(
        in_channels=16,
        out_channels=4,
        num_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=16,
        axes_dims_rope=(4, 4, 8),
    )


def qwen_vae() -> Any:
    import diffusers

    return diffusers.AutoencoderKLQwenImage(
        base_dim=8,
        z_dim=4,
        dim_mult=[1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True],
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    )


def qwen_parts() -> dict[str, Any]:
    import diffusers
    import transformers

    tokenizer = chat_tokenizer()
    start, end, image, video = (tokenizer.convert_tokens_to_ids(token) for token in VISION)
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [1, 1, 2],
            },
        },
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 2,
            "out_hidden_size": 16,
            "fullatt_block_indexes": [0],
        },
        vision_start_token_id=start,
        vision_end_token_id=end,
        image_token_id=image,
        video_token_id=video,
    )
    return {
        "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        "text_encoder": transformers.Qwen2_5_VLForConditionalGeneration(config),
    }


def vision_processor() -> Any:
    """Few visual tokens for an image of any size."""
    import transformers

    size = {"shortest_edge": 28 * 28, "longest_edge": 56 * 56}
    return transformers.Qwen2VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(size=size),
        tokenizer=chat_tokenizer(),
        video_processor=transformers.Qwen2VLVideoProcessor(),
    )


def chat_tokenizer() -> Any:
    """A token per byte, and those of a chat with images."""
    import transformers

    return transformers.Qwen2TokenizerFast(  # type: ignore[attr-defined]
        vocab={word: place for place, word in enumerate(WORDS)},
        merges=[],
        additional_special_tokens=["<|im_start|>", "<|im_end|>", *VISION],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,
        chat_template=CHAT,
    )


def clip_tokenizer() -> Any:
    import transformers

    words = ["<|startoftext|>", "<|endoftext|>", *WORDS]
    return transformers.CLIPTokenizer(
        vocab={word: place for place, word in enumerate(words)}, merges=[], model_max_length=77
    )


def t5_tokenizer() -> Any:
    import transformers

    words = ["<pad>", "</s>", "<unk>", *WORDS]
    model = models.Unigram([(word, -1.0) for word in words], unk_id=2)
    words_only = Tokenizer(model)
    return transformers.T5TokenizerFast(  # type: ignore[attr-defined]
        tokenizer_object=words_only, extra_ids=0
    )


BUILDERS: dict[str, Callable[[], Any]] = {
    "QwenImagePipeline": qwen_image,
    "FluxPipeline": flux,
    "QwenImageEditPipeline": qwen_image_edit,
    "FluxKontextPipeline": kontext,
    "FluxFillPipeline": fill,
    "LongCatImageEditPipeline": longcat,
    "QwenImageEditPlusPipeline": qwen_image_edit_plus,
    "Flux2KleinPipeline": klein,
}
