"""Run in the SFT environment: LLaMA-Factory's own parser on a rendered configuration.

`parse_config.py CONFIG.yaml`; all of it as on a GPU machine, but for the device, and the ZeRO plan,
which is read by accelerate instead of deepspeed.
"""

import json

from accelerate.utils.deepspeed import HfDeepSpeedConfig
from llamafactory.hparams import get_train_args, read_args


def main() -> None:
    config = read_args()
    plan = config.pop("deepspeed", None)
    # Without a GPU, bf16 is refused on principle before anything else is looked at.
    model, data, training, finetuning, _ = get_train_args(config | {"use_cpu": True})
    understood = {
        "epochs": training.num_train_epochs,
        "learning_rate": training.learning_rate,
        "per_device": training.per_device_train_batch_size,
        "accumulation": training.gradient_accumulation_steps,
        "bf16": training.bf16,
        "warmup": training.get_warmup_steps(100),
        "image_max_pixels": model.image_max_pixels,
        "gradient_checkpointing": not model.disable_gradient_checkpointing,
        "cutoff_len": data.cutoff_len,
        "type": finetuning.finetuning_type,
        "frozen": [finetuning.freeze_vision_tower, finetuning.freeze_multi_modal_projector],
        "zero": _zero_stage(plan) if plan else None,
    }
    print(json.dumps(understood))


def _zero_stage(plan: str) -> int:
    read = HfDeepSpeedConfig(plan)
    assert read.is_zero3() and not read.is_offload()
    # Without it a checkpoint would hold no weights that anybody else can read.
    assert read.is_true("zero_optimization.stage3_gather_16bit_weights_on_model_save")
    return read.get_value("zero_optimization.stage")


if __name__ == "__main__":
    main()
