"""The server of `toy_server.py`, started as vLLM is."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from inference.servers import server_process
from inference.servers.server_process import RunningServer, serve
from inference.servers.vllm import ServableAgent, ServerSettings
from warehouse import Home

TOY = str(Path(__file__).with_name("toy_server.py"))


def toy_command(python: Path, model: ServableAgent, settings: ServerSettings) -> list[str]:
    return [str(python), TOY, str(settings.port), *settings.flags]


def toy_python(*_: object) -> Path:
    return Path(sys.executable)


def serve_toy(
    home: Home, port: int, *flags: str, starting: Callable[[str], object] = str
) -> AbstractContextManager[RunningServer]:
    """Call it where `vllm_command` and `ensure_environment` are the toy's: see `use_toy`."""
    settings = ServerSettings(port=port, flags=flags)
    return serve(ServableAgent("toy", "toy"), settings, home, str, starting)


def use_toy() -> None:
    """From now on, this process starts the toy."""
    server_process.vllm_command, server_process.ensure_environment = toy_command, toy_python
