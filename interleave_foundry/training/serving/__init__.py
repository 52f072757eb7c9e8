"""Trained agents behind an endpoint: vLLM, in an environment of its own."""

from .command import ServerSettings
from .models import ServedModel, find_model
from .profile import profile_lines
from .server import Server, serve

__all__ = ["ServedModel", "Server", "ServerSettings", "find_model", "profile_lines", "serve"]
