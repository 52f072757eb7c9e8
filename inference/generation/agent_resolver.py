"""Chooses the agents of a request: promoted checkpoints, or the profile's own."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Literal, Protocol, Self

from schemas import FoundryError
from warehouse import Home

from ..backends.checkpoint.checkpoint_refs import newest, promoted
from ..backends.checkpoint.manifest import AgentRole
from ..backends.factory import Backends
from ..backends.health_check import first_failure
from ..roles import BackendError, Roles

Agents = Literal["auto", "promoted", "profile"]

_POLL_SECONDS, _HEALTH_CHECK_SECONDS = 2.0, 2.0
_CRITICS = {"rl": "critic_rl_checkpoint", "sft": "critic_sft_checkpoint"}

_log = logging.getLogger(__name__)


class AgentResolver(Protocol):
    """Chooses the roles of a request; they stay the same until it ends."""

    async def resolve(self, critic: str | None = None) -> Roles:
        """The roles that are current now.

        Args:
            critic: see `GenerationRequest`.

        Raises:
            FoundryError: there is no such critic, or a backend is unavailable.
        """

    async def check(self) -> None:
        """Check that the backends of the current roles answer.

        Raises:
            FoundryError: one does not; the result of a check is reused for a few seconds.
        """


@dataclass(frozen=True)
class _Choice:
    """Checkpoints as `name@version`; None: the profile's own agent."""

    planner: str | None = None
    critic: str | None = None


class PromotedAgentResolver:
    """The promoted planner and critic, and the profile's generator.

    A context manager. A newly promoted checkpoint is loaded while the earlier one stays in use;
    requests that start afterwards get the new one.

    Args:
        agents: `promoted` checkpoints, the `profile`'s own agents, or `auto`: promoted ones where
            both a planner and a critic were promoted, else the profile's own.

    Raises:
        FoundryError: on entering: nothing was promoted, or a backend of the profile is unavailable.
    """

    def __init__(self, backends: Backends, home: Home, agents: Agents = "auto") -> None:
        self._backends, self._home, self._agents = backends, home, agents
        self._loaded: dict[tuple[AgentRole, str], Any] = {}
        self._check_lock, self._next_check = asyncio.Lock(), 0.0
        self._failure: str | None = None

    async def __aenter__(self) -> Self:
        self._profile_roles = await asyncio.to_thread(self._backends.build, self._home)
        self._choice = await asyncio.to_thread(self._choose)
        self._current = await asyncio.to_thread(self._load, self._choice)
        self._poll_task = asyncio.create_task(self._poll())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._poll_task.cancel()
        with suppress(asyncio.CancelledError):
            await self._poll_task

    async def resolve(self, critic: str | None = None) -> Roles:
        if critic is None:
            return self._current
        return await asyncio.to_thread(self._with_critic, critic)

    async def check(self) -> None:
        async with self._check_lock:
            if monotonic() > self._next_check:
                self._failure = await asyncio.to_thread(
                    first_failure, self._backends, self._current.names, _HEALTH_CHECK_SECONDS
                )
                self._next_check = monotonic() + _POLL_SECONDS
        if self._failure:
            raise BackendError(self._failure)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                await self._update()
            except FoundryError as error:
                _log.warning("the agents in use are not replaced: %s", error)

    async def _update(self) -> None:
        """Switch to newly promoted checkpoints once they are loaded."""
        choice = await asyncio.to_thread(self._choose)
        if choice != self._choice:
            self._current = await asyncio.to_thread(self._load, choice)
            self._choice = choice
            _log.info("new agents: %s", self._current.names)

    def _choose(self) -> _Choice:
        if self._agents == "profile":
            return _Choice()
        choice = _Choice(promoted("planner", self._home), promoted("critic", self._home))
        if choice.planner and choice.critic:
            return choice
        if self._agents == "promoted":
            raise BackendError(
                f"no planner and critic were promoted yet in {self._home.root}: train them with "
                "`interleave run`, or set `service.agents: profile`"
            )
        return _Choice()

    def _with_critic(self, critic: str) -> Roles:
        reference = newest(_CRITICS[critic], self._home) if critic in _CRITICS else None
        if reference is None:
            raise BackendError(
                f"no critic {critic} here: leave it out for the one in use, or train one of "
                f"{', '.join(_CRITICS)} with `interleave run`"
            )
        return self._load(replace(self._choice, critic=reference))

    def _load(self, choice: _Choice) -> Roles:
        roles = self._profile_roles
        if choice.planner:
            roles = replace(roles, planner=self._agent("planner", choice.planner))
        if choice.critic:
            roles = replace(roles, critic=self._agent("critic", choice.critic))
        return roles

    def _agent(self, role: AgentRole, reference: str) -> Any:
        from ..backends.checkpoint.agents import checkpoint_agents

        key = role, reference
        if key not in self._loaded:
            settings = self._backends.checkpoint.model_copy(update={role: reference})
            agent = checkpoint_agents([role], settings, self._home)[role]
            agent.load()
            self._drop_other_versions(key)
            self._loaded[key] = agent
        return self._loaded[key]

    def _drop_other_versions(self, key: tuple[AgentRole, str]) -> None:
        """Release other versions of a checkpoint; running generations hold their own reference."""
        role, name = key[0], key[1].partition("@")[0]
        for other in list(self._loaded):
            if (other[0], other[1].partition("@")[0]) == (role, name):
                del self._loaded[other]
