"""Behind an endpoint a trained agent reads the tokens and sees the pixels that it does in here."""

import re

import pytest
import yaml
from PIL import Image

from inference.agent_prompts import critic_prompt, planner_turn
from inference.backends.checkpoint.encoding import AgentQuery
from inference.backends.checkpoint.model import load_checkpoint_model
from inference.backends.openai.chat import request_of
from inference.backends.providers.agents import RemoteCritic, RemotePlanner
from inference.backends.providers.chat import CompletionResult
from inference.backends.providers.settings import OpenAISettings
from inference.roles import PlanRequest
from tests.inference.backends.checkpoint.tiny_agents import BOTH, PROMPTS
from tests.inference.scripted_world import picture
from training.serving.command import TEMPLATE, ServerSettings
from training.serving.models import ServableAgent
from training.serving.profile import profile_lines
from warehouse import EncodedImage

PLAN = '<think></think><answer>{"execution_plan": [{"step_number": 1}]}</answer>'
STORY = "a <|im_end|> story\n\nSteps so far:\n1. A cat. <image>\n\n<image> 2. A dog. <image>"


class Endpoint:
    """Keeps what it is asked."""

    async def ask(self, question):
        self.question = question
        return CompletionResult(PLAN)


@pytest.fixture(scope="module")
def encoder(shipped):
    return load_checkpoint_model(shipped)._loaded.encoder


@pytest.fixture(scope="module")
def lines():
    """What `agents serve` says about this agent."""
    return yaml.safe_load(
        profile_lines(ServableAgent("tiny@1", "/", manifest=BOTH), ServerSettings())
    )


@pytest.fixture
def endpoint():
    return Endpoint()


def text_sent(encoder, question):
    """The endpoint's text, by the template that the server is given."""
    messages = request_of(question)["messages"]
    template = TEMPLATE.read_text()
    return encoder._tokenizer.apply_chat_template(
        messages, chat_template=template, add_generation_prompt=True, tokenize=False
    )


def text_here(encoder, question):
    """Our own text, with one mark a picture: the endpoint counts its patches itself."""
    text = encoder._tokenizer.decode(encoder.encode(question).tokens)
    return re.sub(r"(<\|image_pad\|>)+", "<|image_pad|>", text)


async def test_a_critic_reads_the_same_text(encoder, lines, endpoint):
    critic = RemoteCritic("openai", endpoint, OpenAISettings(**lines["openai"]).critic)
    before, after = picture("a", 1), picture("b", 2)
    for goal, wording in (("Draw a <|im_end|> cat.", ""), ("Draw a cat.", "A <image> red cat.")):
        await critic.judge(before, after, goal, wording)
        asked = critic_prompt(goal, wording, PROMPTS["critic"]).text
        here = text_here(encoder, AgentQuery(asked, (before, after)))
        assert text_sent(encoder, endpoint.question) == here


async def test_a_planner_reads_the_same_text(encoder, lines, endpoint):
    planner = RemotePlanner("openai", endpoint, OpenAISettings(**lines["openai"]).planner)
    for request in (PlanRequest("a story"), PlanRequest(STORY, tuple(map(picture, "abc")))):
        await planner.plan(request)
        asked = planner_turn(request, PROMPTS["planner_text"], PROMPTS["planner_interleaved"]).text
        here = text_here(encoder, AgentQuery(asked, request.images))
        assert text_sent(encoder, endpoint.question) == here


@pytest.mark.parametrize("size", [(192, 192), (96, 96), (200, 120), (30, 20), (20, 400)])
async def test_a_critic_sees_the_same_pixels(encoder, lines, endpoint, size):
    critic = RemoteCritic("openai", endpoint, OpenAISettings(**lines["openai"]).critic)
    after = EncodedImage.of(Image.effect_noise(size, 80).convert("RGB"))
    await critic.judge(None, after, "Draw a cat.", "")
    (turn,) = endpoint.question.turns
    sent = tuple(part for part in turn.parts if isinstance(part, EncodedImage))
    here = encoder.encode(AgentQuery("<image><image>", (EncodedImage.white(size), after)))
    there = encoder._images(images=[part.image for part in sent], return_tensors="pt")
    assert here.pixels.tolist() == there["pixel_values"].tolist()


async def test_it_is_asked_to_be_sure_and_brief(lines, endpoint):
    critic = RemoteCritic("openai", endpoint, OpenAISettings(**lines["openai"]).critic)
    await critic.judge(None, picture("a"), "Draw a cat.", "")
    request = request_of(endpoint.question)
    assert request["temperature"] == 0
    assert request["max_completion_tokens"] == BOTH.max_new_tokens["critic"]
    assert "response_format" not in request
