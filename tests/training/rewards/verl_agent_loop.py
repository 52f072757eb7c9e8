"""verl's agent loop of episodes in verl's interpreter, with its own processing of prompts."""

import asyncio
import json
import os
from asyncio.subprocess import PIPE

from inference.environments import ensure_environment
from tests.training.rewards.test_server import CLIENT
from training.base_model import PACKAGED_MODEL
from training.grpo.recipe import CriticGrpoSettings, environment

IN_VERL = """
import asyncio, json, sys
from omegaconf import OmegaConf
from transformers import AutoProcessor
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput
from verl_masking.agent_loop import EpisodeAgentLoop

given = json.load(sys.stdin)
processor = AutoProcessor.from_pretrained(given["model"])
rollout = {"prompt_length": given["prompt_length"], "response_length": 512}
known = {"address": given["address"], "image_max_pixels": 4096}
function = {"path": given["client"], "reward_kwargs": known}
config = OmegaConf.create({
    "actor_rollout_ref": {"rollout": rollout},
    "reward": {"custom_reward_function": function},
    "data": {},
})
asked, sizes = [], []

class Policy:
    async def generate(self, prompt_ids, image_data, **_):
        asked.append(processor.tokenizer.decode(prompt_ids, skip_special_tokens=True))
        sizes.append([image.size for image in image_data or ()])
        ids = processor.tokenizer(given["answers"][len(asked) - 1]).input_ids
        known = {"log_probs": [0.0] * len(ids), "extra_fields": {"global_steps": 4}}
        return TokenOutput(token_ids=ids, **known)

async def run():
    loop = EpisodeAgentLoop(
        DictConfigWrap(config), Policy(), processor.tokenizer, processor, RLHFDataset,
        DictConfigWrap(config.data), "qwen3_vl",
    )
    return await loop.run({}, **given["row"])

outputs = asyncio.run(run())
masks = [set(each.response_mask) == {1} for each in outputs]
rewards = [each.reward_score for each in outputs]
parts = outputs[-1].extra_fields["reward_extra_info"]
print(json.dumps([asked, sizes, masks, rewards, parts]))
"""


async def play_in_verl(address, row, answers, prompt_length=2048):
    """Prompts and sizes of images that a policy with these answers is shown, whether all tokens of
    its answers count, the rewards of its turns, and the last one's parts."""
    given = {
        "model": str(PACKAGED_MODEL),
        "prompt_length": prompt_length,
        "client": str(CLIENT),
        "address": str(address),
        "answers": answers,
        "row": row,
    }
    python = await asyncio.to_thread(ensure_environment, "rl", "cpu")
    variables = os.environ | environment(CriticGrpoSettings())
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-c", IN_VERL), stdin=PIPE, stdout=PIPE, stderr=PIPE, env=variables
    )
    output, errors = await process.communicate(json.dumps(given).encode())
    assert process.returncode == 0, errors.decode()
    return json.loads(output.splitlines()[-1])
