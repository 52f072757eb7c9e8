"""Chooses the agents of a request: promoted checkpoints, or the profile's own."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from time import monotonic
from types import MappingProxyType
from typing import Any, Literal, Self

from schemas import FoundryError
from schemas.training import CRITIC, SFT_CRITIC
from warehouse import Home

from ..backends.checkpoint.backend import CheckpointAgent
from ..backends.checkpoint.manifest import PROMOTED, AgentRole, newest, promoted
from ..backends.factory import Backends
from ..roles import BackendError, Roles
from .requests import IN_USE, RequestedAgents

Agents = Literal["auto", "promoted", "profile"]

_POLL_SECONDS, _HEALTH_CHECK_SECONDS = 2.0, 2.0
_CRITICS = {"sft": SFT_CRITIC, "rl": CRITIC}
_BASE = "base"  # the profile's own planner and critic
TRAINED_CRITICS = (_BASE, *_CRITICS)
"""Names of critics that are no references."""
_MOST_LOADED = 4  # weights: agents in use, and those that requests named last
_AGENT_ROLES: frozenset[AgentRole] = frozenset(("planner", "critic"))
_NONE: Mapping[AgentRole, str] = MappingProxyType({})

_log = logging.getLogger(__name__)


# Role -> checkpoint as `name@version`; other roles have the profile's own agents.
_Choice = dict[AgentRole, str]


class AgentResolver:
    """The promoted planner and critic, and the profile's generator.

    A context manager. A newly promoted checkpoint is loaded while the earlier one stays in use;
    requests that start afterwards get the new one.

    Args:
        agents: `promoted` checkpoints, the `profile`'s own agents, or `auto`: promoted ones where
            both a planner and a critic were promoted, else the profile's own.
        named: references (see `manifest.resolve`) of roles that have another agent than these.

    Raises:
        FoundryError: on entering: nothing was promoted, or a backend of the profile is unavailable.
    """

    def __init__(
        self,
        backends: Backends,
        home: Home,
        agents: Agents = "auto",
        named: Mapping[AgentRole, str] = _NONE,
    ) -> None:
        self._backends, self._home, self._agents, self._named = backends, home, agents, named
        # By role and reference, the one used last at the end. Generations that run, and the
        # current roles, hold their own references.
        self._loaded: OrderedDict[tuple[AgentRole, str], Any] = OrderedDict()
        self._load_lock = Lock()
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

    async def resolve(self, agents: RequestedAgents = IN_USE) -> Roles:
        """The roles of a request, which keeps them to its end.

        Raises:
            FoundryError: there is no such agent, or a backend is unavailable.
        """
        if agents == IN_USE:
            return self._current
        return await asyncio.to_thread(self._requested, agents)

    async def critics(self) -> list[str]:
        """The names of trained critics, and `base`, that `resolve` has.

        Raises:
            StorageError: the table of checkpoints cannot be read.
        """

        def find() -> list[str]:
            return [name for name, own in _CRITICS.items() if newest(own, self._home)]

        return [_BASE, *await asyncio.to_thread(find)]

    async def check(self) -> None:
        """Raise BackendError if a current backend does not answer; asked every few seconds."""
        async with self._check_lock:
            if monotonic() > self._next_check:
                self._failure = await asyncio.to_thread(
                    self._backends.first_failure, self._current.names, _HEALTH_CHECK_SECONDS
                )
                self._next_check = monotonic() + _POLL_SECONDS
        if self._failure:
            raise BackendError(self._failure)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                choice = await asyncio.to_thread(self._choose)
                if choice != self._choice:
                    self._current = await asyncio.to_thread(self._load, choice)
                    self._choice = choice
                    _log.info("new agents: %s", self._current.names)
            except FoundryError as error:
                _log.warning("the agents in use are not replaced: %s", error)

    def _choose(self) -> _Choice:
        in_use = promoted(self._home)
        named = {role: self._version_in_use(role, name) for role, name in self._named.items()}
        return self._default_choice(in_use) | named

    def _default_choice(self, in_use: _Choice) -> _Choice:
        if self._agents == "profile" or len(self._named) == len(_AGENT_ROLES):
            return {}
        if in_use.keys() == _AGENT_ROLES:
            return in_use
        if self._agents == "promoted":
            raise BackendError(
                f"no planner and critic were promoted yet in {self._home.root}: train them with "
                "`interleave run`, or set `service.agents: profile`"
            )
        return {}

    def _requested(self, agents: RequestedAgents) -> Roles:
        choice: _Choice = {}
        if agents.planner:
            choice["planner"] = self._version_in_use("planner", agents.planner)
        if agents.critic == _BASE:
            return replace(self._profile_roles, **self._agents_of(choice))
        if agents.critic in _CRITICS:
            choice["critic"] = self._trained_critic(agents.critic)
        elif agents.critic:
            choice["critic"] = self._version_in_use("critic", agents.critic)
        return replace(self._current, **self._agents_of(choice))

    def _trained_critic(self, training: str) -> str:
        if reference := newest(_CRITICS[training], self._home):
            return reference
        raise BackendError(
            f"no critic {training} here: leave it out for the one in use, or train one of "
            f"{', '.join(_CRITICS)} with `interleave run`"
        )

    def _version_in_use(self, role: AgentRole, reference: str) -> str:
        """A reference; `promoted` as `name@version`, where there is one."""
        if reference != PROMOTED:
            return reference
        return promoted(self._home).get(role, PROMOTED)

    def _load(self, choice: _Choice) -> Roles:
        return replace(self._profile_roles, **self._agents_of(choice))

    def _agents_of(self, choice: _Choice) -> dict[AgentRole, Any]:
        with self._load_lock:
            return {role: self._agent(role, reference) for role, reference in choice.items()}

    def _agent(self, role: AgentRole, reference: str) -> Any:
        key = role, reference
        if key not in self._loaded:
            agent = self._backends.agent(role, reference, self._home)
            if isinstance(agent, CheckpointAgent):  # a served one is loaded by the first call
                agent.load()
            self._loaded[key] = agent
        self._loaded.move_to_end(key)
        while len(self._loaded) > _MOST_LOADED:
            self._loaded.popitem(last=False)
        return self._loaded[key]
