"""Trained agents behind an endpoint: vLLM, in an environment of its own."""

from .command import ServerSettings
from .models import ServableAgent, find_model
from .profile import profile_lines
from .server import VllmServer, serve

__all__ = ["ServableAgent", "ServerSettings", "VllmServer", "find_model", "profile_lines", "serve"]
