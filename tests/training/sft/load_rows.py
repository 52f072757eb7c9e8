"""Run in the SFT environment: LLaMA-Factory's own loader of answers, or pairs of them.

Reads name -> configuration as JSON from standard input. The answers are decoded again from the
labels that the loss is computed on.
"""

import json
import sys
from typing import Any

from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
from llamafactory.extras.constants import IGNORE_INDEX
from llamafactory.hparams import get_train_args
from llamafactory.model import load_tokenizer


def load(config: dict[str, Any]) -> dict[str, Any]:
    model, data, training, _finetuning, _ = get_train_args(config)
    modules = load_tokenizer(model)
    tokenizer = modules["tokenizer"]
    template = get_template_and_fix_tokenizer(tokenizer, data)
    # `rm` is the stage whose rows are pairs; `dpo` loads its data so.
    pairs = config["stage"] == "dpo"
    stage = "rm" if pairs else "sft"
    rows = get_dataset(template, model, data, training, stage=stage, **modules)["train_dataset"]

    def decoded(labels: list[int]) -> str:
        return tokenizer.decode([label for label in labels if label != IGNORE_INDEX])

    prefixes = ("chosen_", "rejected_") if pairs else ("",)
    return {
        "answers": [[decoded(row[f"{prefix}labels"]) for prefix in prefixes] for row in rows],
        "images": [row["images"] for row in rows],
        "tokens": [len(row[f"{prefixes[0]}input_ids"]) for row in rows],
    }


def main() -> None:
    results = {name: load(config) for name, config in json.load(sys.stdin).items()}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
