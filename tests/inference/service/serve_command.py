"""`interleave serve` as a process, and the official client."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import openai


@contextmanager
def serving(home: object, *more: str) -> Iterator[tuple[subprocess.Popen, openai.OpenAI]]:
    """The process, on a free port of its choice, and a client of it."""
    command = [sys.executable, "-m", "dagster_project.cli.app", "serve"]
    options = ["--home", str(home), "--port", "0", *more]
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    try:
        lines = iter(process.stderr.readline, "")
        address = re.search(r"http://\S+/v1", next(lines))[0]
        next(line for line in lines if line.startswith("ready"))
        yield process, openai.OpenAI(base_url=address, api_key="none", max_retries=0)
    finally:
        process.kill()
        process.communicate()
