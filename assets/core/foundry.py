"""The resource of every asset: the lake's location and the profile."""

import json
from functools import cached_property
from typing import Any

import dagster as dg
from pydantic import Field

from inference.roles import Roles
from schemas import FoundryError, Table
from schemas.prompts import PROMPTS, PromptRow
from schemas.trajectories import TRAJECTORIES
from training.settings import TrainingSettings
from warehouse import Home

from .profile import Profile, load_profile

SHARDS = dg.DynamicPartitionsDefinition(name="shards")


class FoundryResource(dg.ConfigurableResource):
    """A lake and the profile that its assets are made with."""

    profile: str = Field(default="sketch", description="Profile name, or path of a YAML file")
    root: str = Field(default=".interleave", description="Folder or fsspec URL of the lake")
    size: str = Field(default="", description="A size of the profile; empty: that of the lake")
    sections: str = Field(
        default="", description="Sections in the place of the profile's, as JSON; empty: none"
    )
    processes: int = Field(default=1, description="Processes that make shards and share its limits")
    process: int = Field(default=0, description="Number of this one, from 0")

    @cached_property
    def home(self) -> Home:
        return Home(self.root)

    @cached_property
    def unsized(self) -> Profile:
        """The profile as it is for any size."""
        profile = load_profile(self.profile)
        if not self.sections:
            return profile
        return profile.model_validate({**profile.model_dump(), **json.loads(self.sections)})

    @cached_property
    def settings(self) -> Profile:
        """The profile, with what it changes at the size of this lake."""
        profile = self.unsized
        if profile.size_changes:
            profile = profile.at_size(self.chosen_size)
        return profile.share(self.process, self.processes) if self.processes > 1 else profile

    @cached_property
    def chosen_size(self) -> str:
        """The size that was named, else the largest one where `targets` say how large the bank
        becomes, else the one that the lake has reached."""
        if self.size:
            return self.size
        profile = self.unsized
        if profile.targets:
            return max(profile.sizes, key=profile.sizes.__getitem__)
        return profile.size_of(len(self.home.lake.partitions(TRAJECTORIES)))

    @property
    def shards(self) -> int:
        """Shards of the pack that `chosen_size` stands for."""
        return self.settings.shards(self.chosen_size)

    @property
    def reduced(self) -> bool:
        """Whether the profile trains or evaluates less at this size."""
        changed = self.unsized.size_changes.get(self.chosen_size, {})
        return not changed.keys().isdisjoint(("training", "evaluation"))

    @cached_property
    def roles(self) -> Roles:
        return self.settings.build(self.home)

    @property
    def training(self) -> TrainingSettings:
        """Section `training` of the profile; FoundryError if it has none."""
        if self.settings.training:
            return self.settings.training
        hint = "add one, or use a profile that has it"
        raise FoundryError(f"profile {self.settings.name} has no section training: {hint}")

    def without_keys(self) -> "FoundryResource":
        """The same, whose models can be named and priced, but not called."""
        return self._with_settings(self.settings.without_keys())

    def with_training(self, training: TrainingSettings) -> "FoundryResource":
        """The same, with another section `training`."""
        return self._with_settings(self.settings.model_copy(update={"training": training}))

    def _with_settings(self, settings: Profile) -> "FoundryResource":
        names = ("profile", "root", "size", "sections")
        other = FoundryResource(**{name: getattr(self, name) for name in names})
        # Cached properties: what would be read from profile and lake is known already.
        other.__dict__.update(home=self.home, settings=settings)
        return other

    def rows(self, table: Table, partition: str | None = None) -> list[Any]:
        """A table (or one partition of it) as its row models."""
        records = self.home.lake.read(table, None if partition is None else [partition])
        return [table.row.model_validate(record) for record in records.to_pylist()]

    def prompts_of(self, shard: str) -> list[PromptRow]:
        """The prompts of a shard; FoundryError if the bank has no such shard."""
        if prompts := self.rows(PROMPTS, shard):
            return prompts
        raise FoundryError(
            f"no prompts in shard '{shard}'; materialize `prompts` first, which also adds the "
            "shards that exist as partitions"
        )
