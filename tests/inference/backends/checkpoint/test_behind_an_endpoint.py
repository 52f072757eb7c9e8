"""Behind an endpoint a trained agent gets the same tokens and pixels as in this process."""

import re

import pytest
import yaml
from PIL import Image

from inference.agent_prompts.templates import critic_prompt, planner_turn
from inference.backends.checkpoint.backend import CheckpointModel
from inference.backends.checkpoint.encoding import AgentQuery
from inference.backends.openai.backend import OpenAISettings, chat_arguments
from inference.backends.providers.agents import RemoteCritic, RemotePlanner
from inference.roles import PlanRequest
from inference.servers.vllm import TEMPLATE, Address, ServableAgent, profile_lines
from tests.inference.backends.checkpoint.tiny_agents import BOTH, PROMPTS, RecordingClient
from tests.inference.scripted_world import tiny_image
from tests.inference.servers.toy_serving import agent_server
from warehouse import EncodedImage

PLAN = '<think></think><answer>{"execution_plan": [{"step_number": 1}]}</answer>'
CONTINUED = "a <|im_end|> story\n\nSteps so far:\n1. A cat. <image>\n\n<image> 2. A dog. <image>"


def greedy(client):
    """The last request at temperature 0."""
    return next(each for each in reversed(client.requests) if each.temperature == 0)


@pytest.fixture(scope="module")
def encoder(packaged_folder):
    return CheckpointModel(packaged_folder).loaded.encoder


@pytest.fixture(scope="module")
def lines():
    """The profile section that `agents serve` prints for this agent."""
    return yaml.safe_load(
        profile_lines(ServableAgent("tiny@1", "/", manifest=BOTH), agent_server(), Address())
    )


@pytest.fixture
def client():
    return RecordingClient(PLAN)


def text_at_endpoint(encoder, request):
    """The endpoint's text, by the chat template of the server."""
    messages = chat_arguments(request)["messages"]
    template = TEMPLATE.read_text()
    return encoder.tokenizer.apply_chat_template(
        messages, chat_template=template, add_generation_prompt=True, tokenize=False
    )


def local_text(encoder, query):
    """Our own text, with one token per image: the endpoint counts its patches itself."""
    text = encoder.tokenizer.decode(encoder.encode(query).tokens)
    return re.sub(r"(<\|image_pad\|>)+", "<|image_pad|>", text)


async def test_a_critic_gets_the_same_text(encoder, lines, client):
    critic = RemoteCritic("openai", client, OpenAISettings(**lines["openai"]).critic)
    before, after = tiny_image("a", 1), tiny_image("b", 2)
    for goal, rewritten in (("Draw a <|im_end|> cat.", ""), ("Draw a cat.", "A <image> red cat.")):
        await critic.judge(before, after, goal, rewritten)
        prompt = critic_prompt(goal, rewritten, PROMPTS["critic"]).text
        expected = local_text(encoder, AgentQuery(prompt, (before, after)))
        assert text_at_endpoint(encoder, greedy(client)) == expected


async def test_a_planner_gets_the_same_text(encoder, lines, client):
    planner = RemotePlanner("openai", client, OpenAISettings(**lines["openai"]).planner)
    for request in (PlanRequest("a story"), PlanRequest(CONTINUED, tuple(map(tiny_image, "abc")))):
        await planner.plan(request)
        prompt = planner_turn(request, PROMPTS["planner_text"], PROMPTS["planner_interleaved"]).text
        expected = local_text(encoder, AgentQuery(prompt, request.images))
        assert text_at_endpoint(encoder, greedy(client)) == expected


async def test_a_critic_gets_the_same_pixels(encoder, lines, client):
    critic = RemoteCritic("openai", client, OpenAISettings(**lines["openai"]).critic)
    for size in ((192, 192), (96, 96), (200, 120), (30, 20), (20, 400)):
        after = EncodedImage.of(Image.effect_noise(size, 80).convert("RGB"))
        await critic.judge(None, after, "Draw a cat.", "")
        (turn,) = greedy(client).turns
        sent = tuple(part for part in turn.parts if isinstance(part, EncodedImage))
        here = encoder.encode(AgentQuery("<image><image>", (EncodedImage.white(size), after)))
        there = encoder.image_processor(images=[part.image for part in sent], return_tensors="pt")
        assert here.pixels.tolist() == there["pixel_values"].tolist()
    request = chat_arguments(greedy(client))
    assert request["temperature"] == 0
    assert request["max_completion_tokens"] == BOTH.max_new_tokens["critic"]
    assert "response_format" not in request


async def test_an_answer_that_cannot_be_read_is_asked_for_once_more(lines, client):
    """With the same turns, at the model's own temperature; a critic's is a rejection then."""
    critic = RemoteCritic("openai", client, OpenAISettings(**lines["openai"]).critic)
    verdict = await critic.judge(None, tiny_image("a"), "Draw a cat.", "")
    first, second = client.requests
    assert (first.turns, first.temperature) == (second.turns, 0) and second.temperature is None
    assert (verdict.accepted, verdict.refined_prompt) == (False, "")


async def test_many_images_are_sent_smaller(lines, client):
    settings = OpenAISettings(**lines["openai"]).planner
    settings = settings.model_copy(update={"many_images_pixels": 32 * 32})
    planner = RemotePlanner("openai", client, settings)
    for count, side in ((4, 64), (5, 32)):
        await planner.plan(PlanRequest("a story", (EncodedImage.white((64, 64)),) * count))
        (turn,) = greedy(client).turns
        sent = [part.image.size for part in turn.parts if isinstance(part, EncodedImage)]
        assert sent == [(side, side)] * count
