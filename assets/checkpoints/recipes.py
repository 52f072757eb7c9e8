"""What each checkpoint is made from: its parent, its data and its settings, whose hash it is named.

Planner and critic start from one base model; the critic is taught by samples first and reinforced
then (paper, section 4.1). The ablation makes recipes of its own from the same two functions.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import orjson

from schemas import FoundryError, Table
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT
from schemas.yaml_config import ConfigModel
from training.base_model import base_model_job, packaged
from training.base_model.settings import BaseModelSettings
from training.grpo import RewardRoles, grpo_job
from training.grpo.settings import GrpoSettings
from training.launch import TrainerJob
from training.sft import sft_job
from training.sft.recipe import recipe_content
from training.sft.settings import SftSettings

from ..core.foundry import FoundryResource
from ..curation.exports.folder import tables_of
from .downloads import model_folder

Role = Literal["base", "planner", "critic", "both"]
# (version, folder to work in, folder of the parent)
JobMaker = Callable[[str, Path, Path | None], TrainerJob]
_FORMAT = 1  # raised when a change of code makes other weights from the same recipe


@dataclass(frozen=True)
class DataSet:
    """An export's folder and the tables of it that are learned from: name -> content hash."""

    folder: Path
    tables: Mapping[str, str | None]
    rows: int

    @property
    def version(self) -> str:
        return _digest(dict(self.tables))

    @property
    def behind(self) -> list[str]:
        """Tables whose rows the folder does not hold as they are now."""
        held = tables_of(self.folder)
        return [name for name, content in self.tables.items() if held.get(name) != content]

    def require(self) -> None:
        """Make sure that the folder holds the rows of the tables as they are now.

        Raises:
            FoundryError: it does not, or there is nothing to learn from.
        """
        if self.behind:
            raise FoundryError(
                f"{self.folder} does not hold the newest {', '.join(self.behind)}: materialize "
                "`exports`"
            )
        if not self.rows:
            raise FoundryError(
                f"{', '.join(self.tables)}: no rows to learn from; tell more shards first"
            )


@dataclass(frozen=True)
class Recipe:
    """How a checkpoint is made: by a trainer's `job`, or from weights that are there (`ready`).

    `facts` are what it follows from beside settings, parent and data: the weights that are there,
    the words of a trainer's recipe.
    """

    name: str
    role: Role
    settings: ConfigModel
    job: JobMaker | None = None
    ready: Callable[[], Path] | None = None
    facts: Mapping[str, Any] | None = None
    parent: "Recipe | None" = None
    data: DataSet | None = None

    @cached_property
    def version(self) -> str:
        """12 hex digits: equal for equal parents, rows and settings."""
        origin = {
            "format": _FORMAT,
            "name": self.name,
            "parent": self.parent.version if self.parent else None,
            "data": self.data.version if self.data else None,
            "facts": self.facts,
            "settings": self.settings.model_dump(mode="json"),
        }
        return _digest(origin)


def base_model(foundry: FoundryResource) -> Recipe:
    """The model that planner and critic start from: shipped, taught here, or downloaded."""
    settings = foundry.training.base_model
    shipped = packaged() if settings.source == "packaged" else None
    if settings.source == "huggingface":
        ready = lambda: model_folder(settings.model, settings.revision)  # noqa: E731
        return Recipe("base_model", "base", settings, ready=ready)
    if shipped:
        return Recipe(
            "base_model",
            "base",
            BaseModelSettings(),
            ready=lambda: shipped,
            facts=_contents(shipped),
        )
    return Recipe("base_model", "base", settings, job=_base_job(settings))


def planner_sft(foundry: FoundryResource) -> Recipe:
    """The planner, taught plans."""
    data = exported(foundry, "llamafactory", PLANNER_SFT)
    settings = foundry.training.planner_sft
    return sft("planner_sft_checkpoint", "planner", base_model(foundry), data, settings)


def critic_sft(foundry: FoundryResource) -> Recipe:
    """The critic, taught verdicts and rewrites."""
    data = exported(foundry, "llamafactory", CRITIC_SFT)
    settings = foundry.training.critic_sft
    return sft("critic_sft_checkpoint", "critic", base_model(foundry), data, settings)


def critic_rl(foundry: FoundryResource) -> Recipe:
    """The taught critic, reinforced by what its verdicts and rewrites lead to."""
    data = exported(foundry, "verl", CRITIC_RL)
    settings = foundry.training.critic_rl
    return grpo(foundry, "critic_rl_checkpoint", critic_sft(foundry), data, settings)


def sft(name: str, role: Role, parent: Recipe, data: DataSet, settings: SftSettings) -> Recipe:
    """Supervised fine-tuning of `parent` on the tables of an export for LLaMA-Factory."""

    def job(_version: str, folder: Path, model: Path | None) -> TrainerJob:
        assert model is not None
        return sft_job(name, folder, model, data.folder, list(data.tables), settings)

    facts = recipe_content(settings)
    return Recipe(name, role, settings, job, parent=parent, data=data, facts=facts)


def grpo(
    foundry: FoundryResource, name: str, parent: Recipe, data: DataSet, settings: GrpoSettings
) -> Recipe:
    """Reinforcement of the critic `parent` on an export for verl."""
    chosen = {name: getattr(foundry.settings, name) for name in RewardRoles.model_fields}
    players = RewardRoles(**chosen)
    root = foundry.home.root

    def job(version: str, folder: Path, model: Path | None) -> TrainerJob:
        assert model is not None
        return grpo_job(name, folder, model, data.folder, settings, root, players, version)

    return Recipe(name, "critic", settings, job, parent=parent, data=data)


def exported(foundry: FoundryResource, form: str, *tables: Table) -> DataSet:
    """Tables of the lake as an export of `form` holds them."""
    lake = foundry.home.lake
    contents = {table.name: lake.content_hash(table) for table in tables}
    return DataSet(foundry.home.exports / form, contents, sum(lake.rows(t) for t in tables))


def _base_job(settings: BaseModelSettings) -> JobMaker:
    return lambda _version, folder, _parent: base_model_job("base_model", folder, settings)


@cache
def _contents(folder: Path) -> Mapping[str, str]:
    """Hashes of a model's files; what its card says changes nothing that is trained from it."""
    files = sorted(path for path in folder.iterdir() if path.suffix != ".md")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _digest(facts: object) -> str:
    packed = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(packed).hexdigest()[:12]
