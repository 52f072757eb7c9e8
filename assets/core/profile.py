"""A profile: which backend plays which role, sizes, limits and every threshold, as data."""

from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import Field, PositiveInt, ValidationError, model_validator

from inference.backends.factory import Backends
from inference.loop import check_conditioning
from inference.roles import Roles
from inference.service.settings import ServiceSettings
from inference.settings import Limits, LoopSettings
from schemas import FoundryError
from schemas.yaml_config import load_document
from training.settings import TrainingSettings
from warehouse import Home

from ..curation.settings import CurationSettings
from ..evaluation.settings import EvaluationSettings
from ..generations.settings import GenerationsSettings
from ..prompts.settings import BankSettings, PromptsSettings
from .cluster import ClusterSettings

FOLDER = Path(__file__).parents[2] / "profiles"


class Profile(Backends):
    """Everything that a run of the lineage depends on, beside the code."""

    name: str = Field(description="Name shown in tables and logs")
    description: str = Field(description="What it is for, in one line")
    pack: str = Field(description="Pack (name or folder) whose prompts are told as stories")
    banks: dict[str, PositiveInt] = Field(
        default_factory=dict,
        description="Packs generated beside it: name -> number of shards",
    )
    sizes: dict[str, PositiveInt] = Field(description="Shards of the told pack for each --size")
    size_changes: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="What is set otherwise at a size: size -> sections with their changed keys",
    )
    bank: BankSettings = Field(default_factory=BankSettings, description="How prompts are made")
    prompts: PromptsSettings = Field(
        default_factory=PromptsSettings, description="What prompts are made of beside the packs"
    )
    loop: LoopSettings = Field(default_factory=LoopSettings, description="The planner-critic loop")
    limits: Limits = Field(default_factory=Limits, description="Concurrency, timeouts, retries")
    curation: CurationSettings = Field(
        default_factory=CurationSettings, description="Filter, split, balance, data sets"
    )
    evaluation: EvaluationSettings = Field(
        default_factory=EvaluationSettings, description="Held-out items, variants, intervals"
    )
    training: TrainingSettings | None = Field(
        None, description="How checkpoints are trained; null: the lineage ends with the data sets"
    )
    generations: GenerationsSettings | None = Field(
        None, description="Requests that the asset generations answers; null: none"
    )
    service: ServiceSettings = Field(
        default_factory=ServiceSettings, description="`interleave serve`"
    )
    cluster: ClusterSettings | None = Field(
        None, description="Dagster over several machines; null: this one"
    )

    def build(self, home: Home) -> Roles:
        """See `Backends`; a generator that cannot do what the loop asks for is refused, too."""
        roles = super().build(home)
        check_conditioning(self.loop, roles.generator)
        return roles

    def shards(self, size: str) -> int:
        """Shards of the told pack for a size.

        Raises:
            FoundryError: the profile has no such size.
        """
        if size not in self.sizes:
            known = ", ".join(self.sizes)
            raise FoundryError(f"profile {self.name} has no size '{size}'; there are: {known}")
        return self.sizes[size]

    def size_of(self, shards: int) -> str:
        """The largest size that a lake with so many shards has reached; else the smallest one."""
        by_shards = sorted(self.sizes, key=self.sizes.__getitem__)
        reached = [size for size in by_shards if self.sizes[size] <= shards]
        return (reached or by_shards[:1])[-1]

    def at_size(self, size: str) -> Self:
        """The profile with `size_changes` of a size applied."""
        changes = self.size_changes.get(size)
        if not changes:
            return self
        return self.model_validate({**_merged(self.model_dump(), changes), "size_changes": {}})

    @model_validator(mode="after")
    def _size_changes_are_valid(self) -> Self:
        for size in self.size_changes:
            if size not in self.sizes:
                raise ValueError(f"size_changes.{size}: there is no such size in `sizes`")
            try:
                self.at_size(size)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                key = ".".join(map(str, ("size_changes", size, *first["loc"])))
                raise ValueError(f"{key}: {first['msg']}") from None
        return self


def _merged(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Settings with the changes, section by section."""
    nested = {
        key: _merged(settings[key], value)
        for key, value in changes.items()
        if isinstance(value, dict) and isinstance(settings.get(key), dict)
    }
    return {**settings, **changes, **nested}


@cache
def load_profile(name: str) -> Profile:
    """A packaged profile by name, or any YAML file by path.

    Raises:
        FoundryError: there is no such profile; DocumentError: it does not validate.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.yaml")))
        raise FoundryError(f"no profile '{name}'; there are: {known}, or give a .yaml file")
    return load_document(path, Profile)
