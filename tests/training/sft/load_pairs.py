"""Run in the SFT environment: LLaMA-Factory's own loader of preference data on our export.

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
    # The stage whose rows are pairs; `dpo` loads its data so.
    rows = get_dataset(template, model, data, training, stage="rm", **modules)["train_dataset"]

    def decoded(labels: list[int]) -> str:
        return tokenizer.decode([label for label in labels if label != IGNORE_INDEX])

    return {
        "pairs": [[decoded(row["chosen_labels"]), decoded(row["rejected_labels"])] for row in rows],
        "images": [row["images"] for row in rows],
        "tokens": [len(row["chosen_input_ids"]) for row in rows],
    }


def main() -> None:
    results = {name: load(config) for name, config in json.load(sys.stdin).items()}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
