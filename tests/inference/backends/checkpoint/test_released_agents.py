"""The authors' agents get the text and pictures that their code sends, and are understood.

Prompts and answers here are invented. With INTERLEAVE_RELEASED, a checkout of the authors', the
requests are made of their prompts as well.
"""

import os
import re
from pathlib import Path

import pytest

from inference.agent_prompts.templates import import_prompts
from inference.backends import torch_cpu_shim
from inference.backends.checkpoint.backend import CheckpointBackend, CheckpointModel
from inference.backends.checkpoint.encoding import AgentQuery
from inference.backends.openai.backend import chat_arguments
from inference.backends.providers.agents import RemoteCritic, RemotePlanner
from inference.backends.providers.settings import AgentModel
from inference.roles import PlanRequest, PlanStep
from tests.inference.agent_prompts.test_importing import MODULE, constants
from tests.inference.backends.checkpoint.tiny_agents import RecordingClient
from warehouse import EncodedImage

REQUEST = "How to draw a 'kite' both visually and textually"
CONTINUED = "<image>Two of four steps are done: (1) a frame, (2) a tail. <IMAGE>\nGo on."
PLAN = """<think>

</think>

<answer>
{
   'execution_plan':
   [
      {'step_number': 3, 'step_name': 'Bows', 'instruction': "Tie the kite's bows.",
       'prompt': 'Add "red" bows.', 'auxiliary_text': 'None'},
      {'step_number': 4, 'step_name': 'Why', 'instruction': null,
       'prompt': None, 'auxiliary_text': 'It flies.'}
   ]
}
</answer>"""
ACCEPTED = """<think>It is right.</think>
<answer>{'previous_step_success': True, 'refine_prompt': 'Add bows.'}</answer>"""


@pytest.fixture
def checkout(tmp_path):
    if named := os.environ.get("INTERLEAVE_RELEASED"):
        return Path(named)
    (tmp_path / "checkout" / "UEval").mkdir(parents=True)
    (tmp_path / "checkout" / "UEval" / "system.py").write_text(MODULE)
    return tmp_path / "checkout"


@pytest.fixture
def settings(checkout, tmp_path):
    """The folder of prompts, as a profile names it."""
    import_prompts(checkout, tmp_path / "prompts")
    return AgentModel(model="theirs", form="tags", agent_prompts=str(tmp_path / "prompts"))


def their_messages(text, images):
    """What `construct_msgs` of their demos sends, in OpenAI's words."""
    content = []
    for number, part in enumerate(re.split("(?i)<image>", text)):
        if part:
            content.append({"type": "text", "text": part})
        if number < len(images):
            content.append({"type": "image_url", "image_url": {"url": images[number].data_url}})
    return [{"role": "user", "content": content}]


def their_prompt(checkout, name, **values):
    text = constants(checkout)[name]
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text


async def test_a_planner_gets_what_their_code_sends(checkout, settings):
    client = RecordingClient(PLAN)
    planner = RemotePlanner("openai", client, settings)
    images = EncodedImage.white((64, 64)), EncodedImage.white((48, 48))
    await planner.plan(PlanRequest(REQUEST))
    plan = await planner.plan(PlanRequest(CONTINUED, images))
    first, second = (chat_arguments(request) for request in client.requests)
    asked = their_prompt(checkout, "NARRATIVE_PROMPT_JSON", text_input="How to draw a 'kite'")
    assert first["messages"] == their_messages(asked, ())
    asked = their_prompt(checkout, "GUIDANCE_GLOBAL_PROMPT_JSON", text_input=CONTINUED)
    assert second["messages"] == their_messages(asked, images)
    assert {"temperature", "response_format", "seed"}.isdisjoint(first)
    assert plan.steps == (
        PlanStep(3, "Bows", "Tie the kite's bows.", 'Add "red" bows.', None),
        PlanStep(4, "Why", None, None, "It flies."),
    )


async def test_a_critic_gets_what_their_code_sends(checkout, settings):
    client = RecordingClient(ACCEPTED)
    theirs = settings.model_copy(update={"repeats_first_prompt": True})
    critic = RemoteCritic("openai", client, theirs)
    before, after = EncodedImage.white((64, 64)), EncodedImage.white((48, 48))
    # Their demo begins a step with the plan's prompt as the one that is refined.
    for rewritten, sent in (("Add bows.", "Add bows."), ("", "Bows.")):
        verdict = await critic.judge(before, after, "Bows.", rewritten)
        values = {"original_instruction": "Bows.", "rewritten_prompt": sent}
        asked = "<image><image>\n" + their_prompt(checkout, "Iterative_T2I_PROMPT_QWEN", **values)
        request = chat_arguments(client.requests[-1])
        assert request["messages"] == their_messages(asked, (before, after))
        assert (verdict.accepted, verdict.refined_prompt) == (True, ""), "they repeat the old one"


def test_in_this_process_a_model_gets_the_tokens_of_its_own_template(
    checkout, settings, packaged_folder
):
    """Of `apply_chat_template`, by which their code asks it: no system turn, nothing trimmed."""
    torch_cpu_shim.install()  # before transformers is imported
    from transformers import AutoProcessor

    model = CheckpointModel(packaged_folder, CheckpointBackend(device="cpu"))
    processor = AutoProcessor.from_pretrained(packaged_folder)
    images = (EncodedImage.white((64, 64)),) * 2
    values = {"original_instruction": "Bows.", "rewritten_prompt": ""}
    asked = "<image><image>\n" + their_prompt(checkout, "Iterative_T2I_PROMPT_QWEN", **values)
    [message] = their_messages(asked, images)
    message["content"] = [
        {"type": "image", "image": images[0].image} if part["type"] == "image_url" else part
        for part in message["content"]
    ]
    theirs = processor.apply_chat_template(
        [message], tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    prompt = model.loaded.encoder.encode(AgentQuery(asked, images))
    assert prompt.tokens == theirs.input_ids[0].tolist()
    assert prompt.pixels.tolist() == theirs.pixel_values.tolist()
