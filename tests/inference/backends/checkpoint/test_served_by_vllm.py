"""The real vLLM on CPU serves a tiny critic, which answers there what it answers in here."""

import asyncio
import json
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import psutil
import pytest
import yaml
from PIL import Image

from inference.agent_prompts import critic_answer
from inference.backends.checkpoint.agents import checkpoint_agents
from inference.backends.checkpoint.manifest import FILE
from inference.backends.checkpoint.settings import CheckpointSettings
from inference.backends.factory import Backends
from inference.backends.openai.chat import OpenAIChat
from inference.backends.providers.chat import ChatTurn, CompletionRequest
from inference.backends.providers.endpoints import EndpointSettings
from inference.engine.usage import Usage, metered
from inference.roles import Verdict
from tests.helpers.ports import free_port
from tests.inference.backends.checkpoint.tiny_agents import BOTH, critic_asked, learn_by_heart
from warehouse import EncodedImage, Home

pytestmark = pytest.mark.slow

GOAL = "Draw a cat."
# Larger than the critic was shown in training, so that they are shrunk on both ways.
RED, BLUE = (EncodedImage.of(Image.new("RGB", (192, 192), colour)) for colour in ("red", "blue"))
VERDICTS = {
    RED: Verdict(True, "", "Top left: want red cat, see red cat, right.\nThe step succeeded."),
    BLUE: Verdict(False, "Draw a red cat.", "Top left: want red cat, see blue cat, wrong."),
}
ANSWER = {
    "type": "object",
    "properties": {"success": {"type": "boolean"}, "kind": {"enum": ["red", "blue"]}},
    "required": ["success", "kind"],
    "additionalProperties": False,
}
PATIENCE_SECONDS = 1800


@dataclass
class Served:
    """`interleave agents serve` at work, and what it printed."""

    command: subprocess.Popen[str]
    lines: dict

    @property
    def endpoint(self) -> EndpointSettings:
        return EndpointSettings(**self.lines["openai"]["critic"]["endpoints"][0])


@pytest.fixture(scope="module")
def critic(shipped, tmp_path_factory):
    """The base model, which knows two verdicts by heart."""
    folder = tmp_path_factory.mktemp("checkpoints") / "critic"
    shutil.copytree(shipped, folder)
    white = EncodedImage.white(RED.image.size)
    lessons = [(critic_asked(GOAL, white, p), critic_answer(v)) for p, v in VERDICTS.items()]
    learn_by_heart(folder, lessons)
    limits = {"planner": 60, "critic": 120}
    manifest = BOTH.model_copy(update={"role": "critic", "max_new_tokens": limits})
    (folder / FILE).write_text(manifest.model_dump_json())
    return folder


@pytest.fixture(scope="module")
def served(critic, vllm_python, tmp_path_factory):
    """Started once for all tests; the last of them kills it."""
    home = tmp_path_factory.mktemp("home")
    program = [sys.executable, "-m", "dagster_project.cli.app", "agents", "serve"]
    where = ["--gpus", "0", "--port", str(free_port()), "--home", str(home)]
    with (home / "stderr").open("w+") as said:
        command = subprocess.Popen(
            [*program, str(critic), *where], stdout=subprocess.PIPE, stderr=said, text=True
        )
        impatience = threading.Timer(PATIENCE_SECONDS, command.kill)
        impatience.start()
        try:
            printed = "".join(iter(command.stdout.readline, "\n"))
            assert printed, (home / "stderr").read_text()
            yield Served(command, yaml.safe_load(printed))
        finally:
            impatience.cancel()
            command.terminate()
            command.communicate()


def judged(critic):
    """Verdict on each picture, and the tokens that were read."""

    async def both():
        usage = Usage()
        with metered(usage):
            asked = [critic.judge(None, picture, GOAL, "") for picture in VERDICTS]
            return await asyncio.gather(*asked), usage.input_tokens

    return asyncio.run(both())


def test_two_pictures_get_the_verdicts_that_they_get_in_here(served, critic):
    roles = dict.fromkeys(("planner", "generator", "scorer"), "sketch") | {"critic": "openai"}
    home = Home("memory://served")
    remote = Backends.model_validate({"roles": roles, **served.lines}).build(home).critic
    local = checkpoint_agents(
        ["critic"], CheckpointSettings(critic=str(critic), device="cpu"), home
    )
    there, here = judged(remote), judged(local["critic"])
    assert there == here
    assert there[0] == list(VERDICTS.values())


def test_answers_follow_a_schema(served):
    model = served.lines["openai"]["critic"]["model"]
    turn = ChatTurn("user", (RED, "Which is it?"))
    question = CompletionRequest(model, (turn,), schema=ANSWER, max_tokens=60, temperature=0)

    async def ask():
        adapter = OpenAIChat(timeout_seconds=600)
        client = adapter.connect(served.endpoint)
        try:
            return await adapter.answer(client, question)
        finally:
            await adapter.close(client)

    reply = asyncio.run(ask())
    answer = json.loads(reply.text)
    assert isinstance(answer["success"], bool) and answer["kind"] in ("red", "blue")
    assert not any(letter.isspace() for letter in reply.text)


def test_a_killed_command_leaves_no_process(served):
    below = psutil.Process(served.command.pid).children(recursive=True)
    assert len(below) >= 3  # the driver, vLLM's server, its engine
    served.command.kill()
    served.command.wait()
    deadline = time.monotonic() + 120
    while any(alive(process) for process in below) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not [process for process in below if alive(process)]


def alive(process):
    """A zombie that no init takes away has ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
