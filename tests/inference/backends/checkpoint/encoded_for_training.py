"""Run by LLaMA-Factory's interpreter: tokens and pixels of samples, as in its training.

usage: encoded_for_training.py CHECKPOINT SAMPLES.json RESULT.json
"""

import json
import sys
from pathlib import Path

from llamafactory.data.template import get_template_and_fix_tokenizer
from llamafactory.hparams import DataArguments
from transformers import AutoProcessor

checkpoint, samples, result = sys.argv[1:]
processor = AutoProcessor.from_pretrained(checkpoint)
processor.image_max_pixels, processor.image_min_pixels = 96 * 96, 32 * 32
settings = DataArguments(template="qwen3_vl", enable_thinking=True)
template = get_template_and_fix_tokenizer(processor.tokenizer, settings)


def encode(sample):
    messages, images = sample["messages"], sample["images"]
    turns = template.mm_plugin.process_messages(messages, images, [], [], processor)
    prompt, answer = template.encode_oneturn(processor.tokenizer, turns)
    inputs = template.mm_plugin._get_mm_inputs(images, [], [], processor) if images else {}
    pixels = {name: tensor.tolist() for name, tensor in inputs.items()}
    return {"prompt": prompt, "answer": answer, **pixels}


encoded = [encode(sample) for sample in json.loads(Path(samples).read_text())]
Path(result).write_text(json.dumps(encoded))
