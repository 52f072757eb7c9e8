"""The lines of a profile with which the `openai` backend asks a server."""

import os
from typing import Any

import yaml

from inference.backends.checkpoint.manifest import AgentRole, CheckpointError, Manifest

from .command import ServerSettings
from .models import ServableAgent

# vLLM reads the API key that it requires from this variable.
KEY_VARIABLE = "VLLM_API_KEY"
_PROMPTS: dict[AgentRole, tuple[str, ...]] = {
    "planner": ("planner_text", "planner_interleaved"),
    "critic": ("critic",),
}


def profile_lines(model: ServableAgent, settings: ServerSettings) -> str:
    """YAML: the section `openai` of a profile, with every role of the model."""
    endpoint = {"model": model.name, "endpoints": [_endpoint(settings)]}
    agents = {role: endpoint | prompting for role, prompting in _prompting(model).items()}
    return yaml.dump(
        {"openai": agents}, Dumper=_PlainDumper, sort_keys=False, default_flow_style=None, width=100
    )


def _endpoint(settings: ServerSettings) -> dict[str, Any]:
    key = {"key": KEY_VARIABLE} if os.environ.get(KEY_VARIABLE) else {}
    return {"url": settings.url, **key, "concurrency": settings.concurrency}


def _prompting(model: ServableAgent) -> dict[AgentRole, dict[str, Any]]:
    """Role -> its prompts: those of its training, or for foreign models JSON by our schemas."""
    if model.manifest is None:
        return {role: {"form": "schema"} for role in _PROMPTS}
    manifest = model.manifest
    return {role: _trained_prompting(role, manifest) for role in _PROMPTS if _plays(manifest, role)}


def _trained_prompting(role: AgentRole, manifest: Manifest) -> dict[str, Any]:
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
        manifest.check_role(role)
    except CheckpointError:
        return False
    return True


class _PlainDumper(yaml.SafeDumper):
    """Without anchors, though the roles of a model share their endpoint."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
