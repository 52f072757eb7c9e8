"""Merge LoRA adapters into the model beside them: `python -m merge_lora FOLDER`.

verl's merger writes the parent's weights to FOLDER and the adapters to FOLDER/lora_adapter.
"""

import shutil
import sys
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForImageTextToText


def main(folder: Path) -> None:
    """Replace the weights by the merged ones, in their precision, and remove the adapters."""
    dtype = AutoConfig.from_pretrained(folder).dtype or torch.bfloat16
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, folder / "lora_adapter").merge_and_unload()
    merged = folder / "merged"
    model.to(dtype).save_pretrained(merged)
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    for new in merged.glob("*.safetensors*"):
        new.rename(folder / new.name)
    shutil.rmtree(merged)
    shutil.rmtree(folder / "lora_adapter")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
