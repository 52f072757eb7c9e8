"""Run in the SFT environment: LLaMA-Factory's own parser on our configurations.

Reads name -> configuration as JSON from standard input; its rows are loaded instead where the name
begins with `rows`. All is as on a GPU machine, but for the
device, and the ZeRO plan, which is read by accelerate instead of deepspeed.
"""

import json
import sys
from typing import Any

import torchvision.transforms.v2  # noqa: F401  the environment must have it
from accelerate.utils.deepspeed import HfDeepSpeedConfig
from llamafactory.hparams import get_train_args
from load_rows import load
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK


def parse(config: dict[str, Any]) -> dict[str, Any]:
    plan = config.pop("deepspeed", None)
    # Without a GPU, bf16 is rejected before anything else is looked at.
    model, data, training, finetuning, _ = get_train_args(config | {"use_cpu": True})
    return {
        "bf16": training.bf16,
        "warmup": training.get_warmup_steps(100),
        "gradient_checkpointing": not model.disable_gradient_checkpointing,
        "type": finetuning.finetuning_type,
        "frozen": [finetuning.freeze_vision_tower, finetuning.freeze_multi_modal_projector],
        "zero": _zero_stage(plan) if plan else None,
        "evaluation": [
            training.eval_strategy.value,
            training.eval_steps,
            data.eval_dataset,
            finetuning.early_stopping_steps,
        ],
        "best": [
            training.load_best_model_at_end,
            training.metric_for_best_model,
            training.greater_is_better,
        ],
        "trackers": training.report_to,
        "unknown_trackers": sorted({*training.report_to} - {*INTEGRATION_TO_CALLBACK, "none"}),
        "run": [training.project, training.run_name],
    }


def _zero_stage(path: str) -> int:
    plan = HfDeepSpeedConfig(path)
    assert plan.is_zero3() and not plan.is_offload()
    # Without it a checkpoint would hold no weights that other programs can read.
    assert plan.is_true("zero_optimization.stage3_gather_16bit_weights_on_model_save")
    return plan.get_value("zero_optimization.stage")


def main() -> None:
    results = {}
    for name, config in json.load(sys.stdin).items():
        try:
            results[name] = load(config) if name.startswith("rows") else parse(config)
        except Exception as error:
            results[name] = {"error": str(error)}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
