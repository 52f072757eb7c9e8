"""Run in the SFT environment: LLaMA-Factory's own parser on a rendered configuration.

`parse_config.py CONFIG.yaml`; what only a GPU machine has (deepspeed, bf16) is looked at apart:
the options as such by the dataclasses, the ZeRO plan by transformers' own reader of it.
"""

import json
import os
import sys

from llamafactory.hparams import get_train_args, read_args
from llamafactory.hparams.parser import _TRAIN_ARGS
from transformers import HfArgumentParser
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig


def main() -> None:
    config = read_args()
    plan = config.pop("deepspeed", None)
    if not config.get("use_cpu"):
        # A machine without a GPU refuses bf16 on principle, before it looks at anything else.
        config |= {"use_cpu": True}
    model, data, training, finetuning, _ = get_train_args(config)
    if plan:
        read_plan(plan, training)
    print(
        json.dumps(
            {
                "epochs": training.num_train_epochs,
                "learning_rate": training.learning_rate,
                "per_device": training.per_device_train_batch_size,
                "accumulation": training.gradient_accumulation_steps,
                "bf16": training.bf16,
                "image_max_pixels": model.image_max_pixels,
                "gradient_checkpointing": not model.disable_gradient_checkpointing,
                "cutoff_len": data.cutoff_len,
                "template": data.template,
                "type": finetuning.finetuning_type,
                "frozen": [finetuning.freeze_vision_tower, finetuning.freeze_multi_modal_projector],
                "warmup": training.get_warmup_steps(100),
                "zero": plan and json.loads(open(plan).read())["zero_optimization"]["stage"],
            }
        )
    )


def read_plan(path: str, training: object) -> None:
    """Fills in what is `auto`; raises where plan and options contradict each other."""
    plan = HfTrainerDeepSpeedConfig(path)
    plan.trainer_config_process(training)
    assert plan.is_zero3()
    assert plan.get_value("bf16.enabled") is True, plan.config
    assert plan.get_value("gradient_accumulation_steps") == training.gradient_accumulation_steps


if __name__ == "__main__":
    assert os.path.exists(sys.argv[1])
    assert HfArgumentParser(_TRAIN_ARGS)
    main()
