"""The real vLLM on CPU serves a tiny critic, with the same answers as in this process."""

import asyncio
import json
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass

import psutil
import pytest
import yaml
from PIL import Image

from inference.agent_prompts.formatting import critic_answer
from inference.backends.checkpoint.backend import CheckpointBackend
from inference.backends.checkpoint.manifest import MANIFEST_FILE
from inference.backends.factory import Backends
from inference.backends.openai.backend import OpenAIAdapter
from inference.backends.providers.chat import ChatTurn, CompletionRequest
from inference.backends.providers.settings import EndpointSettings
from inference.calls.retry import CallUsage, collect_usage
from inference.roles import Verdict
from tests.helpers.ports import free_port
from tests.inference.backends.checkpoint.tiny_agents import BOTH, critic_query, overfit
from tests.inference.service.running_service import wait_until
from warehouse import EncodedImage, Home

pytestmark = [pytest.mark.slow, pytest.mark.long]

GOAL = "Draw a cat."
# Larger than in the critic's training, so that they are shrunk on both ways.
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
TIMEOUT_SECONDS = 1800


@dataclass
class Served:
    """A running `interleave agents serve`, and what it printed."""

    command: subprocess.Popen[str]
    lines: dict

    @property
    def endpoint(self) -> EndpointSettings:
        return EndpointSettings(**self.lines["openai"]["critic"]["endpoints"][0])


@pytest.fixture(scope="module")
def critic(packaged_folder, tmp_path_factory):
    """The base model, overfitted to two verdicts."""
    folder = tmp_path_factory.mktemp("checkpoints") / "critic"
    shutil.copytree(packaged_folder, folder)
    white = EncodedImage.white(RED.image.size)
    samples = [(critic_query(GOAL, white, p), critic_answer(v)) for p, v in VERDICTS.items()]
    overfit(folder, samples)
    limits = {"planner": 60, "critic": 120}
    manifest = BOTH.model_copy(update={"role": "critic", "max_new_tokens": limits})
    (folder / MANIFEST_FILE).write_text(manifest.model_dump_json())
    return folder


@pytest.fixture(scope="module")
def served(critic, vllm_python, tmp_path_factory):
    """Started once for all tests; the last test kills it."""
    home = tmp_path_factory.mktemp("home")
    program = [sys.executable, "-m", "dagster_project.cli.app", "agents", "serve"]
    where = ["--gpus", "0", "--port", str(free_port()), "--home", str(home)]
    with (home / "stderr").open("w+") as stderr:
        command = subprocess.Popen(
            [*program, str(critic), *where], stdout=subprocess.PIPE, stderr=stderr, text=True
        )
        timer = threading.Timer(TIMEOUT_SECONDS, command.kill)
        timer.start()
        try:
            printed = "".join(iter(command.stdout.readline, "\n"))
            assert printed, (home / "stderr").read_text()
            yield Served(command, yaml.safe_load(printed))
        finally:
            timer.cancel()
            command.terminate()
            command.communicate()


def judge_all(critic):
    """Verdict on each image, and the input tokens."""

    async def judge():
        usage = CallUsage()
        with collect_usage(usage):
            calls = [critic.judge(None, image, GOAL, "") for image in VERDICTS]
            return await asyncio.gather(*calls), usage.input_tokens

    return asyncio.run(judge())


def test_verdicts_are_those_of_this_process(served, critic):
    roles = dict.fromkeys(("planner", "generator", "scorer"), "sketch") | {"critic": "openai"}
    home = Home("memory://served")
    remote = Backends.model_validate({"roles": roles, **served.lines}).build(home).critic
    local = CheckpointBackend(critic=str(critic), device="cpu").local_agents(["critic"], home)
    served_verdicts, local_verdicts = judge_all(remote), judge_all(local["critic"])
    assert served_verdicts == local_verdicts
    assert served_verdicts[0] == list(VERDICTS.values())


def test_answers_follow_a_schema(served):
    model = served.lines["openai"]["critic"]["model"]
    turn = ChatTurn("user", (RED, "Which is it?"))
    request = CompletionRequest(model, (turn,), schema=ANSWER, max_tokens=60, temperature=0)

    async def complete():
        adapter = OpenAIAdapter(timeout_seconds=600)
        client = adapter.connect(served.endpoint)
        try:
            return await adapter.complete(client, request)
        finally:
            await adapter.close(client)

    result = asyncio.run(complete())
    answer = json.loads(result.text)
    assert isinstance(answer["success"], bool) and answer["kind"] in ("red", "blue")
    assert not any(letter.isspace() for letter in result.text)


def test_a_killed_command_leaves_no_process(served):
    children = psutil.Process(served.command.pid).children(recursive=True)
    assert len(children) >= 3  # the driver, vLLM's server, its engine
    served.command.kill()
    served.command.wait()
    wait_until(lambda: not any(map(is_alive, children)), seconds=120)


def is_alive(process):
    """A zombie that no init reaps has ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
