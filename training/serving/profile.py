"""The lines of a profile with which the `openai` backend asks a server."""

import os
import socket
from typing import Any

import yaml

from inference.backends.checkpoint.manifest import AgentRole, CheckpointError, Manifest

from .command import ServerSettings
from .models import ServableAgent

# vLLM reads the key that it asks for from this variable.
KEY_VARIABLE = "VLLM_API_KEY"
_EVERYWHERE = ("0.0.0.0", "::", "")
_PROMPTS: dict[AgentRole, tuple[str, ...]] = {
    "planner": ("planner_text", "planner_interleaved"),
    "critic": ("critic",),
}


def profile_lines(model: ServableAgent, settings: ServerSettings) -> str:
    """YAML: the section `openai` of a profile, with every role that the model plays."""
    where = {"model": model.name, "endpoints": [_endpoint(settings)]}
    agents = {role: where | how for role, how in _asked(model).items()}
    document = {"openai": agents}
    return yaml.dump(document, Dumper=_Plain, sort_keys=False, default_flow_style=None, width=100)


def url_of(settings: ServerSettings) -> str:
    """Base URL of a server, for clients."""
    host = socket.gethostname() if settings.host in _EVERYWHERE else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/v1"


def _endpoint(settings: ServerSettings) -> dict[str, Any]:
    key = {"key": KEY_VARIABLE} if os.environ.get(KEY_VARIABLE) else {}
    return {"url": url_of(settings), **key, "concurrency": settings.at_once}


def _asked(model: ServableAgent) -> dict[AgentRole, dict[str, Any]]:
    """By role, how it is asked: as it was trained to be, or else for JSON by our schemas."""
    if model.manifest is None:
        return {role: {"form": "schema"} for role in _PROMPTS}
    manifest = model.manifest
    return {role: _trained(role, manifest) for role in _PROMPTS if _plays(manifest, role)}


def _trained(role: AgentRole, manifest: Manifest) -> dict[str, Any]:
    prompts = manifest.agent_prompts.items()
    return {
        "form": "tags",
        "temperature": 0,
        "max_tokens": manifest.max_new_tokens[role],
        "image_pixels": [manifest.image_min_pixels, manifest.image_max_pixels],
        "agent_prompts": {str(name): prompt for name, prompt in prompts if name in _PROMPTS[role]},
    }


def _plays(manifest: Manifest, role: AgentRole) -> bool:
    try:
        manifest.check_plays(role)
    except CheckpointError:
        return False
    return True


class _Plain(yaml.SafeDumper):
    """Without anchors: the roles of a model say the same about where it is."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
