"""The command `llm`, with a model of `extra-openai-models.yaml`."""

import base64
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import openai
from calls import QUESTION, URL, call, report

folder = Path(tempfile.mkdtemp())
(folder / "extra-openai-models.yaml").write_text(
    f"""
- model_id: interleave
  model_name: interleave
  api_base: {URL}
  vision: true
  supports_schema: true
  supports_tools: true
"""
)
environment = os.environ | {"LLM_USER_PATH": str(folder), "OPENAI_API_KEY": "none"}


def run(*arguments: str) -> str:
    command = [Path(sys.executable).with_name("llm"), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


call("prompt")(lambda: "![" in run("-m", "interleave", QUESTION, "--no-stream"))
call("prompt, streamed")(lambda: "![" in run("-m", "interleave", QUESTION))
call("conversation (-c)")(lambda: "![" in run("-m", "interleave", "-c", "Add a yellow sun"))


@call("attachment (-a)")
def _():
    response = openai.OpenAI(base_url=URL, api_key="none").responses.create(input=QUESTION)
    image = next(item for item in response.output if item.type == "image_generation_call")
    path = folder / "house.png"
    path.write_bytes(base64.b64decode(image.result))
    return "![" in run("-m", "interleave", "Add a yellow sun", "-a", str(path))


call("schema (--schema)")(
    lambda: run("-m", "interleave", QUESTION, "--schema", '{"type": "object"}')
)
call("tool (-T)")(lambda: run("-m", "interleave", QUESTION, "-T", "llm_version"))


report()
