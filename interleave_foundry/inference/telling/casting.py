"""Who plays in a story: the promoted checkpoints, or whom the profile names."""

from dataclasses import dataclass
from typing import Protocol

from ..roles import Roles, name_of


@dataclass(frozen=True)
class Cast:
    """The players of one story; they stay the same to its end."""

    roles: Roles

    @property
    def names(self) -> dict[str, str]:
        """Role -> backend, model and version, as every answer says them."""
        played = {"planner": self.roles.planner, "generator": self.roles.generator}
        return {
            role: name_of(player)
            for role, player in {**played, "critic": self.roles.critic}.items()
        }


class Casting(Protocol):
    """Chooses the players of a request."""

    async def cast(self, critic: str | None = None) -> Cast:
        """The players of now.

        Args:
            critic: see `StoryRequest`.

        Raises:
            FoundryError: there is no such critic, or a player cannot be had.
        """
