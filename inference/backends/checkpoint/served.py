"""Checkpoints behind an OpenAI-compatible server, such as vLLM: prompted as they were trained."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from warehouse import Home

from ...servers.instance import ServerInstance
from ...servers.settings import AgentServer, ServerSpec
from ..openai.backend import OpenAISettings
from ..providers.factory import remote_agents
from ..providers.settings import AgentModel, EndpointSettings
from .manifest import AgentRole, Answers, CheckpointError, Manifest, PromptName, read_manifest

_PROMPTS: dict[AgentRole, tuple[str, ...]] = {
    "planner": ("planner_text", "planner_interleaved"),
    "critic": ("critic",),
}
ROLES = tuple(_PROMPTS)


def has_role(manifest: Manifest, role: AgentRole) -> bool:
    """Whether a checkpoint was trained for a role."""
    with suppress(CheckpointError):
        manifest.check_role(role)
        return True
    return False


def prompting(role: AgentRole, manifest: Manifest, answers: Answers = "usual") -> dict[str, Any]:
    """Fields of `AgentModel`: the prompts and limits of a role's training.

    Constrained answers are JSON whose schema the server enforces; sampled ones are at the server's
    default, which is the temperature of the model's generation_config, else 1.
    """
    is_greedy = manifest.decoding == "greedy" and answers != "sampled"
    prompts = manifest.agent_prompts.items()
    return {
        "form": "schema" if answers == "constrained" else "tags",
        "temperature": 0 if is_greedy else None,
        "max_tokens": manifest.max_new_tokens[role],
        "image_pixels": [manifest.image_min_pixels, manifest.image_max_pixels],
        "many_images_pixels": manifest.many_images_max_pixels,
        "repeats_first_prompt": manifest.repeats_first_prompt,
        "agent_prompts": {str(name): prompt for name, prompt in prompts if name in _PROMPTS[role]},
    }


def served_agent(
    role: AgentRole,
    folder: Path,
    name: str,
    server: AgentServer,
    home: Home,
    foreign_prompts: Mapping[PromptName, str],
    answers: Answers = "usual",
) -> Any:
    """The agent of a checkpoint's folder, at a server of the profile, which the first call starts.

    Raises:
        CheckpointError: there is no such checkpoint, or it was not trained for the role.
    """
    manifest = read_manifest(folder, foreign_prompts)
    manifest.check_role(role)
    source = str(folder.absolute())
    spec = ServerSpec(
        name=name, model=source, root=home.root, settings=server, served_as=manifest.identity
    )
    endpoint = EndpointSettings(server=name, concurrency=server.concurrency)
    fields = prompting(role, manifest, answers)
    model = AgentModel(model=manifest.identity, endpoints=[endpoint], **fields)
    servers = {name: ServerInstance.of(spec, home)}
    agents = remote_agents(OpenAISettings(), {role: model}, {}, None, home, servers, "checkpoint")
    return agents[role]
