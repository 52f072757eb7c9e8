"""The server of `toy_server.py`, started as vLLM is."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from inference.servers import vllm
from inference.servers.server_process import RunningServer
from inference.servers.settings import AgentServer
from inference.servers.vllm import Address, ServableAgent, serve
from warehouse import Home

TOY = str(Path(__file__).with_name("toy_server.py"))


def agent_server(**settings: object) -> AgentServer:
    return AgentServer.model_validate({"kind": "agents", "model": "toy", "gpus": 0} | settings)


def toy_command(
    python: Path, model: ServableAgent, settings: AgentServer, address: Address
) -> list[str]:
    return [str(python), TOY, str(address.port), *settings.flags]


def toy_python(*_: object) -> Path:
    return Path(sys.executable)


def serve_toy(
    home: Home, port: int, *flags: str, starting: Callable[[str], object] = str
) -> AbstractContextManager[RunningServer]:
    """Call it where `vllm_command` and `ensure_environment` are the toy's: see `use_toy`."""
    settings = agent_server(flags=flags)
    return serve(ServableAgent("toy", "toy"), settings, Address(port=port), home, str, starting)


def use_toy() -> None:
    """From now on, this process starts the toy."""
    vllm.vllm_command, vllm.ensure_environment = toy_command, toy_python
