"""Roles bound to the server of `faulty_provider.py`."""

from typing import Any

from inference.backends.factory import Backends
from inference.roles import Roles
from tests.inference.backends.providers.faulty_provider import Provider
from warehouse import Home

AGENT = {"model": "m-1"}


def provider_roles(
    server: Provider,
    backend: str,
    home: Home,
    agents: dict[str, dict[str, Any]] | None = None,
    profile: dict[str, Any] | None = None,
    **settings: Any,
) -> Roles:
    """Planner, critic and scorer at the provider, and its generator if it has one.

    Args:
        agents: role -> settings of the roles at the provider; the others are `sketch`.
        profile: more sections of the profile; `settings`: more of the provider's.
    """
    agents = agents or dict.fromkeys(("planner", "critic", "scorer"), AGENT) | generator_of(backend)
    url = f"{server.url}/v1" if backend == "openai" else server.url
    section = {"endpoints": [{"url": url, "key": "TEST_KEY"}], **settings, **agents}
    names = ("planner", "generator", "critic", "scorer")
    roles = {role: backend if role in agents else "sketch" for role in names}
    return Backends.model_validate({"roles": roles, backend: section} | (profile or {})).build(home)


def generator_of(backend: str) -> dict[str, dict[str, Any]]:
    """The provider's generator, if it has one."""
    return {"generator": {"model": "banana"}} if backend == "gemini" else {}
