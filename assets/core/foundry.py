"""The one resource of every asset: where the lake is, and the profile that says how to work."""

import asyncio
from collections.abc import Coroutine
from functools import cached_property
from typing import Any, TypeVar

import dagster as dg
from pydantic import Field

from inference.roles import Roles
from schemas import FoundryError, Table
from schemas.trajectories import TRAJECTORIES
from training.settings import TrainingSettings
from warehouse import Home

from .profile import Profile, load_profile

Result = TypeVar("Result")

SHARDS = dg.DynamicPartitionsDefinition(name="shards")


class FoundryResource(dg.ConfigurableResource):
    """A profile at work on a lake."""

    profile: str = Field(default="sketch", description="Profile name, or path of a YAML file")
    root: str = Field(default=".interleave", description="Folder or fsspec URL of the lake")
    size: str = Field(default="", description="A size of the profile; empty: that of the lake")

    @cached_property
    def home(self) -> Home:
        return Home(self.root)

    @cached_property
    def settings(self) -> Profile:
        """The profile, with what it changes at the size of this lake."""
        profile = load_profile(self.profile)
        if not profile.size_changes:
            return profile
        shards = len(self.home.lake.partitions(TRAJECTORIES))
        return profile.at_size(self.size or profile.size_of(shards))

    @cached_property
    def roles(self) -> Roles:
        return self.settings.build(self.home)

    @property
    def training(self) -> TrainingSettings:
        """How the profile trains.

        Raises:
            FoundryError: it does not.
        """
        if self.settings.training is None:
            raise FoundryError(
                f"profile {self.settings.name} has no section training: add one, or use a profile "
                "that has it"
            )
        return self.settings.training

    def rows(self, table: Table, shard: str | None = None) -> list[Any]:
        """A table (or one shard of it) as its row models."""
        partitions = None if shard is None else [shard]
        records = self.home.lake.read(table, partitions).to_pylist()
        return [table.row.model_validate(record) for record in records]

    def prompts_of(self, shard: str) -> list[Any]:
        """The prompts of a shard.

        Raises:
            FoundryError: the bank has no such shard.
        """
        from schemas.prompts import PROMPTS

        prompts = self.rows(PROMPTS, shard)
        if not prompts:
            raise FoundryError(
                f"no prompts in shard '{shard}'; materialize `prompts` first, which also adds the "
                "shards that exist as partitions"
            )
        return prompts


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run an engine's coroutine to its end from an asset's body."""
    return asyncio.run(work)
