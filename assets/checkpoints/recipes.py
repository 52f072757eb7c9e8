"""Recipes of checkpoints: parent, data and settings, whose hash is the checkpoint's version.

Planner and critic start from one base model and are fine-tuned (SFT); then the critic is trained
with GRPO (paper, section 4.1) and, where a profile says so, the planner. The ablation builds its
recipes from the same functions.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from inference.agent_prompts.templates import version_of
from inference.backends.checkpoint.manifest import AgentRole
from inference.backends.factory import Backends, Judge
from inference.backends.providers.settings import RemoteModel
from inference.calls.hashing import content_digest
from inference.environments import Hardware, pinned_version
from schemas import FoundryError, Table
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_RL, PLANNER_SFT
from schemas.training import BASE_MODEL, CRITIC, PLANNER, RL_PLANNER, SFT_CRITIC
from schemas.yaml_config import ConfigModel
from training.base_model import PACKAGED_MODEL, BaseModelSettings
from training.grpo.driver import GrpoJob, grpo_job
from training.grpo.recipe import CriticGrpoSettings, GrpoSettings, PlannerGrpoSettings
from training.launch.jobs import TrainerJob
from training.registry import CheckpointRegistry
from training.rewards.policy_critic import CriticQuestion
from training.settings import TrainingSettings
from training.sft.driver import sft_job
from training.sft.recipe import SftJob, SftSettings, read_recipe, recipe_content
from warehouse import Home

from ..core.foundry import FoundryResource
from ..core.profile import Profile
from ..curation.exports.folder import read_card
from ..curation.sources import TrainingSources
from ..prompts.pack_loader import world_of
from ..prompts.rounds import RoundPlan, trained_round

Role = Literal["base", "planner", "critic", "both"]
# (version, folder to work in, folder of the parent: None without one)
JobMaker = Callable[[str, Path, Any], TrainerJob]
_FORMAT = 1  # incremented when a change of code makes other weights from the same recipe
_DOWNLOADED_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]


@dataclass(frozen=True)
class DataSet:
    """An export's folder and the tables of it that are trained on (name -> content hash)."""

    folder: Path
    tables: Mapping[str, str | None]
    rows: int
    sources: TrainingSources
    mix: Mapping[str, Any] = field(default_factory=dict)  # see `TrainingSources.mix`

    @property
    def version(self) -> str:
        content = dict(self.tables)
        return content_digest([content, self.mix] if self.mix else content)[:12]

    @property
    def outdated(self) -> list[str]:
        """Tables that have changed since the export was written."""
        card = read_card(self.folder)
        exported, mix = card.get("tables") or {}, card.get("mix") or {}
        changed = [name for name, content in self.tables.items() if exported.get(name) != content]
        mixed = [name for name in self.tables if mix.get(name) != self.mix.get(name)]
        return list(dict.fromkeys([*changed, *mixed]))

    def require(self) -> None:
        """Raises FoundryError unless the export is up to date and has rows."""
        if self.outdated:
            newest = ", ".join(self.outdated)
            raise FoundryError(
                f"{self.folder} does not hold the newest {newest}: materialize `exports`"
            )
        if not self.rows:
            tables, hint = ", ".join(self.tables), "run more shards first"
            if PLANNER_RL.name in self.tables:
                hint = "the pack needs more shards (`banks`) than have trajectories"
            raise FoundryError(f"{tables}: no rows to train on; {hint}")


@dataclass(frozen=True)
class Recipe:
    """How a checkpoint is made: by a trainer's `job`, or from existing `weights`.

    `inputs`: what else it follows from: the content of weights, the text of a trainer's recipe and
    the trainer's version, the models behind a reward.
    """

    name: str
    role: Role
    settings: ConfigModel
    job: JobMaker | None = None
    weights: Callable[[], Path] | None = None
    inputs: Mapping[str, Any] | None = None
    parent: "Recipe | None" = None
    data: DataSet | None = None
    known_version: str | None = None  # of a checkpoint that exists

    @cached_property
    def version(self) -> str:
        """12 hex digits: equal for equal parents, rows and settings."""
        if self.known_version:
            return self.known_version
        # Keys are hashed: another name would be another version of every checkpoint.
        origin = {
            "format": _FORMAT,
            "name": self.name,
            "parent": self.parent.version if self.parent else None,
            "data": self.data.version if self.data else None,
            "facts": self.inputs,
            "settings": self.settings,
        }
        return content_digest(origin)[:12]


RecipeOf = Callable[[FoundryResource], Recipe]


def base_model(foundry: FoundryResource) -> Recipe:
    """The base model: packaged, or from Hugging Face, as `source` says."""
    settings = foundry.training.base_model
    if settings.source == "huggingface":
        return Recipe(BASE_MODEL, "base", settings, weights=lambda: _downloaded_base(settings))
    inputs, default = _file_hashes(PACKAGED_MODEL), BaseModelSettings()
    return Recipe(BASE_MODEL, "base", default, weights=lambda: PACKAGED_MODEL, inputs=inputs)


def planner_sft(foundry: FoundryResource) -> Recipe:
    return _supervised(foundry, "planner", PLANNER, PLANNER_SFT)


def critic_sft(foundry: FoundryResource) -> Recipe:
    return _supervised(foundry, "critic", SFT_CRITIC, CRITIC_SFT)


def _supervised(foundry: FoundryResource, role: AgentRole, name: str, table: Table) -> Recipe:
    """An agent trained on `table`, from the base model, or from what a round begins with."""
    section, plan = f"{role}_sft", _round(foundry)
    settings: SftSettings = getattr(_training(foundry), section)
    if plan:  # from a checkpoint `name@version`, whatever its own recipe was
        start, _, version = plan.agents[role].partition("@")
        parent = Recipe(start, role, ConfigModel(), known_version=version)
    else:
        parent = _start(section, role, settings) or base_model(foundry)
    return sft(name, role, parent, _lineage_data(foundry, "llamafactory", table), settings)


def planner_rl(foundry: FoundryResource) -> Recipe:
    """FoundryError: the profile has none, or nothing grades the plans of its pack."""
    settings, profile = _training(foundry).planner_rl, foundry.settings
    if settings is None:
        raise FoundryError(
            f"profile {profile.name} has no training.planner_rl: add it to reinforce the planner"
        )
    if settings.plays_episodes and not settings.start:
        raise FoundryError(
            f"{profile.name}: training.planner_rl.reward.of episode is for an agent that plans and "
            "judges: name one as training.planner_rl.start, or set `of: outcome`"
        )
    parent = _start("planner_rl", "planner", settings) or planner_sft(foundry)
    data = _lineage_data(foundry, "verl", PLANNER_RL)
    return grpo(foundry, RL_PLANNER, parent, data, settings)


def critic_rl(foundry: FoundryResource) -> Recipe:
    settings = _training(foundry).critic_rl
    start = None if _round(foundry) else _start("critic_rl", "critic", settings)
    data = _lineage_data(foundry, "verl", CRITIC_RL)
    return grpo(foundry, CRITIC, start or critic_sft(foundry), data, settings)


def _require_grader(profile: Profile, problem: str, remedy: str) -> None:
    """Raises FoundryError where no judge is set, and the pack has no exact grader."""
    if profile.evaluation.judge is None and world_of(profile.pack) != "sketch":
        raise FoundryError(
            f"training.{problem} of pack {profile.pack}: set `evaluation.judge`, or {remedy}"
        )


def agent_names(foundry: FoundryResource) -> dict[AgentRole, tuple[str, ...]]:
    """The checkpoints that the lineage makes now, by role, in the order of the pipeline."""
    reinforced = (RL_PLANNER,) if _training(foundry).planner_rl else ()
    return {"planner": (PLANNER, *reinforced), "critic": (SFT_CRITIC, CRITIC)}


def _round(foundry: FoundryResource) -> RoundPlan | None:
    """The round that agents are trained in; None: on the lineage's sets, from the base model."""
    return trained_round(foundry.home) if foundry.settings.rounds else None


def _training(foundry: FoundryResource) -> TrainingSettings:
    own = foundry.settings.round_training if _round(foundry) else None
    return own or foundry.training


def _lineage_data(foundry: FoundryResource, form: str, table: Table) -> DataSet:
    """The newest rows of a table: of the round that agents are trained in, if there is one."""
    plan = _round(foundry)
    number = plan.number if plan else None
    sources = TrainingSources(foundry.home, foundry.settings.curation, number)
    return exported_data(sources, form, table)


def _start(training: str, role: Role, settings: SftSettings | GrpoSettings) -> Recipe | None:
    """The model that a training starts from in place of ours: `<training>_start`, if any."""
    if (start := settings.start) is None:
        return None
    section = f"training.{training}.start"

    def weights() -> Path:
        return _downloaded(start.model, start.revision, section)

    return Recipe(f"{training}_start", role, start, weights=weights)


def newest_version(home: Home, recipe: Recipe) -> str:
    """The version of a recipe, or the last one trained under its name while that is not trained.

    Data may change after a training, and during one: what it made is still evaluated and promoted.
    """
    versions = [row.version for row in CheckpointRegistry(home).rows(recipe.name)]
    return recipe.version if recipe.version in versions or not versions else versions[-1]


def sft(
    name: str,
    role: Role,
    parent: Recipe,
    data: DataSet,
    settings: SftSettings,
    repeats: Mapping[str, float] | None = None,
) -> Recipe:
    """Supervised fine-tuning of `parent` on the tables of an export for LLaMA-Factory.

    `repeats`: how often an epoch has the rows of a table; None: each once.
    """
    changes = {"repeats": dict(repeats)} if repeats else {}
    shared = {"data": data.folder, "datasets": list(data.tables), "settings": settings, **changes}

    def job(_version: str, folder: Path, model: Path) -> TrainerJob:
        return sft_job(name, folder, SftJob(parent=model, **shared))

    hardware: Hardware = "gpu" if read_recipe(settings).gpus else "cpu"
    trainer = pinned_version("sft", hardware, "llamafactory")
    inputs = recipe_content(settings) | {"trainer": trainer} | changes
    return Recipe(name, role, settings, job, parent=parent, data=data, inputs=inputs)


def grpo(
    foundry: FoundryResource,
    name: str,
    parent: Recipe,
    data: DataSet,
    settings: CriticGrpoSettings | PlannerGrpoSettings,
) -> Recipe:
    """GRPO of the agent `parent` on an export for verl.

    Raises FoundryError: nothing grades what its rewards are for.
    """
    profile = foundry.settings
    if isinstance(settings, PlannerGrpoSettings):
        _require_grader(profile, "planner_rl: nothing grades the plans", "leave planner_rl out")
    elif settings.reward.of != "step":
        problem = "critic_rl.reward: nothing grades the trajectories"
        _require_grader(profile, problem, "set `of: step`")
    roles = Backends(**{f: getattr(profile, f) for f in Backends.model_fields})
    (table,), judge, critic = data.tables, profile.evaluation.judge, profile.curation.critic
    shared = {
        **{"settings": settings, "root": foundry.home.root, "roles": roles, "loop": profile.loop},
        "data": data.folder / f"{table}.parquet",
        "question": CriticQuestion(critic.agent_prompt, critic.canvas_size),
        "judge": judge and Judge(backend=judge.backend, model=judge.model),
    }

    def job(version: str, folder: Path, model: Path) -> TrainerJob:
        return grpo_job(name, folder, GrpoJob(parent=model, version=version, **shared))

    hardware: Hardware = "gpu" if settings.gpus else "cpu"
    inputs: dict[str, Any] = {"trainer": pinned_version("rl", hardware, "verl")}
    if isinstance(settings, PlannerGrpoSettings):
        inputs |= _origin_of_grades(profile, roles, settings)
        role: Role = "planner"
        if settings.plays_episodes:  # rows of the planner do not say how the critic is asked
            role, inputs["question"] = "both", version_of(critic.agent_prompt)
        return Recipe(name, role, settings, job, parent=parent, data=data, inputs=inputs)
    inputs |= {
        "generator": _models_of(roles, "generator", settings.reward.generators),
        "scorer": _models_of(roles, "scorer"),
    }
    if settings.reward.of != "step":
        inputs = _origin_of_grades(profile, roles, settings) | inputs
    elif (conditioning := profile.loop.conditioning) != "last":
        inputs["conditioning"] = conditioning
    return Recipe(name, "critic", settings, job, parent=parent, data=data, inputs=inputs)


def _origin_of_grades(
    profile: Profile, roles: Backends, settings: CriticGrpoSettings | PlannerGrpoSettings
) -> dict[str, Any]:
    """What grades in rewards follow from: the grader and, where the loop plays, its models."""
    judge, asks_critic = profile.evaluation.judge, settings.reward.asks_critic
    grader = {"grader": judge and judge.model.identity}
    if not (asks_critic or settings.plays_episodes):
        return grader
    models = {"generator": _models_of(roles, "generator")}
    models |= {"critic": _models_of(roles, "critic")} if asks_critic else {}
    return {**grader, **models, "loop": profile.loop}


def _models_of(
    roles: Backends, role: Literal["generator", "critic", "scorer"], named: Sequence[str] = ()
) -> dict[str, Any]:
    """Backends of a role -> what their answers follow from; no keys or endpoints are needed.

    `named`: backends that play it; none: those of `roles`.
    """
    bound = named or [backend for backend, names in roles.bound.items() if role in names]
    models = {backend: _model_of(getattr(roles, backend), role) for backend in bound}
    if role == "scorer" and roles.roles.scorer == "ensemble" and roles.ensemble:
        models["ensemble"] = roles.ensemble
    return models


def _model_of(settings: ConfigModel, role: str) -> Any:
    model = getattr(settings, role, None)
    return model.identity if isinstance(model, RemoteModel) else settings


def exported(foundry: FoundryResource, form: str, *tables: Table) -> DataSet:
    """`exported_data` of the lineage's own sets."""
    sources = TrainingSources(foundry.home, foundry.settings.curation)
    return exported_data(sources, form, *tables)


def exported_data(sources: TrainingSources, form: str, *tables: Table) -> DataSet:
    """Training sets and their export in format `form`."""
    contents = {table.name: sources.hash(table) for table in tables}
    rows = sum(map(sources.count, tables))
    return DataSet(sources.exports / form, contents, rows, sources, sources.mix(tables))


def _downloaded_base(settings: BaseModelSettings) -> Path:
    section = "training.base_model"
    if not settings.model:
        raise FoundryError(f"{section}: source is huggingface, so set `model` as well")
    return _downloaded(settings.model, settings.revision, section)


def _downloaded(model: str, revision: str | None, section: str) -> Path:
    """Folder of a model: a local path as it is, an id downloaded at `revision` unless cached."""
    if Path(model).is_dir():
        return Path(model).absolute()
    if not revision:
        hint = "set `revision` to the commit that is meant"
        raise FoundryError(f"{section}: {model} is no folder here, so it is an id: {hint}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=_DOWNLOADED_FILES))
    except (HFValidationError, OSError) as error:  # all others of the hub are OSErrors
        problem = f"cannot be downloaded: {str(error).strip().splitlines()[0]}"
        raise FoundryError(f"{section}: {model} at {revision} {problem}") from error


@cache
def _file_hashes(folder: Path) -> Mapping[str, str]:
    """sha256 of a model's files; its card does not influence what is trained from it."""
    files = sorted(path for path in folder.iterdir() if path.suffix != ".md")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# The checkpoints that the lineage makes, by name.
LINEAGE: dict[str, RecipeOf] = {
    BASE_MODEL: base_model,
    PLANNER: planner_sft,
    RL_PLANNER: planner_rl,
    SFT_CRITIC: critic_sft,
    CRITIC: critic_rl,
}
