"""Who plays in a story: the checkpoints in use, or whom the profile names."""

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
from ..backends.providers.health_check import trouble
from ..roles import BackendError, Roles, qualified_name

Agents = Literal["auto", "promoted", "profile"]

_LOOK_SECONDS, _PATIENCE_SECONDS = 2.0, 2.0
_CRITICS = {"rl": "critic_rl_checkpoint", "sft": "critic_sft_checkpoint"}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResolvedRoles:
    """The players of one story; they stay the same to its end."""

    roles: Roles

    @property
    def names(self) -> dict[str, str]:
        """Role -> backend, model and version, as every answer says them."""
        roles = self.roles
        played = {"planner": roles.planner, "generator": roles.generator, "critic": roles.critic}
        return {role: qualified_name(player) for role, player in played.items()}


class AgentResolver(Protocol):
    """Chooses the players of a request."""

    async def cast(self, critic: str | None = None) -> ResolvedRoles:
        """The players of now.

        Args:
            critic: see `StoryRequest`.

        Raises:
            FoundryError: there is no such critic, or a player cannot be had.
        """

    async def check(self) -> None:
        """See that the players of now can answer.

        Raises:
            FoundryError: one cannot, as far as was seen a few seconds ago.
        """


@dataclass(frozen=True)
class _Choice:
    """Agents by `name@version`; None: the profile's own."""

    planner: str | None = None
    critic: str | None = None


class PromotedAgentResolver:
    """The planner and critic in use, and the profile's generator.

    A context manager. A newly promoted checkpoint is loaded beside the one in use and takes its
    place for the requests that come later; those under way keep theirs.

    Args:
        agents: whose words count: `promoted` checkpoints, the `profile`'s own agents; `auto`:
            promoted ones where both a planner and a critic were promoted, else the profile's own.

    Raises:
        FoundryError: on entering: nothing was promoted, or what the profile names is not there.
    """

    def __init__(self, backends: Backends, home: Home, agents: Agents = "auto") -> None:
        self._backends, self._home, self._agents = backends, home, agents
        self._players: dict[tuple[AgentRole, str], Any] = {}
        self._checking, self._check_again = asyncio.Lock(), 0.0
        self._trouble: str | None = None

    async def __aenter__(self) -> Self:
        self._own = await asyncio.to_thread(self._backends.build, self._home)
        self._chosen = await asyncio.to_thread(self._choose)
        self._in_use = await asyncio.to_thread(self._prepared, self._chosen)
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._watching.cancel()
        with suppress(asyncio.CancelledError):
            await self._watching

    async def cast(self, critic: str | None = None) -> ResolvedRoles:
        """See `AgentResolver`."""
        if critic is None:
            return self._in_use
        return await asyncio.to_thread(self._with_critic, critic)

    async def check(self) -> None:
        """See `AgentResolver`."""
        async with self._checking:
            if monotonic() > self._check_again:
                self._trouble = await asyncio.to_thread(
                    trouble, self._backends, self._in_use.names, _PATIENCE_SECONDS
                )
                self._check_again = monotonic() + _LOOK_SECONDS
        if self._trouble:
            raise BackendError(self._trouble)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._look()
            except FoundryError as error:
                _log.warning("the players stay as they are: %s", error)

    async def _look(self) -> None:
        """Take over what was promoted meanwhile, once it is loaded."""
        choice = await asyncio.to_thread(self._choose)
        if choice != self._chosen:
            self._in_use = await asyncio.to_thread(self._prepared, choice)
            self._chosen = choice
            _log.info("new players: %s", self._in_use.names)

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

    def _with_critic(self, critic: str) -> ResolvedRoles:
        reference = newest(_CRITICS[critic], self._home) if critic in _CRITICS else None
        if reference is None:
            raise BackendError(
                f"no critic {critic} here: leave it out for the one in use, or train one of "
                f"{', '.join(_CRITICS)} with `interleave run`"
            )
        return self._prepared(replace(self._chosen, critic=reference))

    def _prepared(self, choice: _Choice) -> ResolvedRoles:
        """The cast of a choice, loaded."""
        roles = self._own
        if choice.planner:
            roles = replace(roles, planner=self._player("planner", choice.planner))
        if choice.critic:
            roles = replace(roles, critic=self._player("critic", choice.critic))
        return ResolvedRoles(roles)

    def _player(self, role: AgentRole, reference: str) -> Any:
        from ..backends.checkpoint.agents import checkpoint_agents

        key = role, reference
        if key not in self._players:
            settings = self._backends.checkpoint.model_copy(update={role: reference})
            player = checkpoint_agents([role], settings, self._home)[role]
            player.load()
            self._forget_others_of(key)
            self._players[key] = player
        return self._players[key]

    def _forget_others_of(self, key: tuple[AgentRole, str]) -> None:
        """Let go of other versions of a checkpoint; a story under way keeps its own."""
        role, name = key[0], key[1].partition("@")[0]
        for other in list(self._players):
            if (other[0], other[1].partition("@")[0]) == (role, name):
                del self._players[other]
