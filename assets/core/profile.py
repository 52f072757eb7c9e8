"""A profile: the backend of every role, sizes, limits, thresholds, and the cluster, as data."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from inference.backends.checkpoint.backend import CheckpointBackend
from inference.backends.checkpoint.manifest import is_at_hub_alone
from inference.backends.factory import Backends
from inference.backends.providers.settings import ChatModel
from inference.environments import gpus
from inference.generators import generator_shares
from inference.loop import check_conditioning
from inference.roles import Roles
from inference.service.settings import ServiceSettings
from inference.settings import Limits, LoopSettings
from schemas import FoundryError
from schemas.errors import first_problem
from schemas.trajectories import LOOP_ROLES, Role
from schemas.yaml_config import ConfigModel, load_document, read_yaml
from training.gpu_assignment import GpuAssignment
from training.settings import TrainingSettings
from warehouse import Home

from ..benchmarks.settings import BenchmarksSettings
from ..curation.settings import OURS, CurationSettings, MixSettings, TargetName
from ..evaluation.settings import EvaluationSettings
from ..generations.settings import GenerationsSettings
from ..imports.settings import ImportSettings
from ..prompts.settings import BankSettings, PromptsSettings
from ..rounds.settings import RoundsSettings
from .additions import merged, nested, value_at, with_additions
from .notification_settings import NotificationSettings

# Numbers of calls that processes of one run divide.
_IN_FLIGHT = {"limits": ("generator", "agents", "trajectories_in_flight"), "rounds": ("in_flight",)}
# null: none, where another profile, by `base`, has some
Targets = Annotated[dict[TargetName, PositiveInt], BeforeValidator(lambda value: value or {})]
FOLDER = Path(__file__).parents[2] / "profiles"


class RaySettings(ConfigModel):
    """Runs of the UI, its backfills and schedules as jobs of a Ray cluster."""

    address: str = Field(description="Ray's job server, such as http://head:8265")
    cpus: PositiveFloat = Field(1, description="CPUs of a node that a run takes")
    gpus: float = Field(0, ge=0, description="GPUs of a node that a run takes")
    resumes: int = Field(3, ge=0, description="How often a run is resumed after its node died")


class PostgresSettings(ConfigModel):
    """A database that all machines reach."""

    host: str = Field(description="Host name")
    port: PositiveInt = Field(5432, description="Port")
    user: str = Field("dagster", description="User name")
    database: str = Field("dagster", description="Database name")
    password: str | None = Field(
        None, description="Environment variable that holds the password; null: no password"
    )


class ClusterSettings(ConfigModel):
    """Dagster over more than one machine.

    Every node needs this package at the same path, and the same secrets in its environment.
    """

    ray: RaySettings | None = Field(None, description="null: runs stay on this machine")
    postgres: PostgresSettings | None = Field(
        None, description="Database of Dagster's history; null: files in the home"
    )
    runs: PositiveInt = Field(16, description="Runs (shards) executed at the same time")


class Profile(Backends):
    """Everything that a run of the lineage depends on, besides the code."""

    name: str = Field(description="Name shown in tables and logs")
    description: str = Field(description="What it is for, in one line")
    pack: str = Field(description="Pack (name or folder) whose prompts become trajectories")
    banks: dict[str, PositiveInt] = Field(
        default_factory=dict,
        description="Packs whose prompts are only generated: name -> number of shards",
    )
    sizes: dict[str, PositiveInt] = Field(description="Shards of the pack for each --size")
    size_changes: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="What is set otherwise at a size: size -> sections with their changed keys",
    )
    on_gpus: dict[PositiveInt, dict[str, Any]] = Field(
        {},
        description="What is set otherwise on a machine with so many GPUs (or more, up to the next "
        "number here): number -> sections with their changed keys",
    )
    bank: BankSettings = Field(BankSettings(), description="How prompts are made")
    prompts: PromptsSettings = Field(
        PromptsSettings(), description="Sources of prompts besides the packs"
    )
    loop: LoopSettings = Field(LoopSettings(), description="The planner-critic loop")
    limits: Limits = Field(Limits(), description="Concurrency, timeouts, retries")
    curation: CurationSettings = Field(
        CurationSettings(), description="Filter, split, balance, data sets"
    )
    imports: dict[str, ImportSettings] = Field(
        {}, description="Training rows of other people, by name, that the asset `imports` reads"
    )
    targets: Targets = Field(
        {},
        description="Rows that the training sets are to have, imports and rounds included: "
        "`interleave run` makes shards until they do, at most as many as the size has",
    )
    evaluation: EvaluationSettings = Field(
        EvaluationSettings(), description="Held-out items, variants, intervals"
    )
    training: TrainingSettings | None = Field(
        None, description="How checkpoints are trained; null: the lineage ends with the data sets"
    )
    rounds: RoundsSettings | None = Field(
        None,
        description="How `interleave improve` trains the agents on what they make; null: it does "
        "not, and the lineage trains from the base model",
    )
    benchmarks: BenchmarksSettings | None = Field(
        None, description="Benchmarks of the field; null: those that `interleave evaluate` names"
    )
    generations: GenerationsSettings | None = Field(
        None, description="Requests of the asset generations; null: none"
    )
    service: ServiceSettings = Field(ServiceSettings(), description="`interleave serve`")
    cluster: ClusterSettings | None = Field(
        None, description="Dagster over several machines; null: on this one"
    )
    notifications: NotificationSettings | None = Field(
        None, description="Who is told of failed runs; null: nobody"
    )
    components: bool = Field(
        True,
        description="Whether what components in `dagster_project/defs` bring is to be added: false "
        "once it was",
    )

    def build(self, home: Home) -> Roles:
        """The backends of all roles; FoundryError where the generator lacks what the loop needs."""
        roles = super().build(home)
        for generator, _ in generator_shares(roles):
            check_conditioning(self.loop, generator)
        return roles

    @property
    def generators(self) -> tuple[str, ...]:
        """Backends whose generators draw: in the loop, then for GRPO's rewards."""
        named = self.training.critic_rl.reward.generators if self.training else ()
        return tuple(dict.fromkeys((*self.roles.generators, *named)))

    @property
    def side_models(self) -> Iterator[tuple[str, Role, str, ChatModel]]:
        """Models that are asked beside the loop: key, role, backend and settings of each."""
        if expansion := self.prompts.expansion:
            yield "prompts.expansion.model", "expander", expansion.backend, expansion.model
        if judge := self.evaluation.judge:
            yield "evaluation.judge.rubrics", "rubric_writer", judge.backend, judge.rubrics
            yield "evaluation.judge.model", "judge", judge.backend, judge.model
        if self.benchmarks and (judge_of := self.benchmarks.judge):
            yield "benchmarks.judge.model", "benchmark_judge", judge_of.backend, judge_of.model

    @property
    def gpu_assignment(self) -> GpuAssignment:
        names = {
            name
            for _, role, backend, model in self.side_models
            if role in ("judge", "benchmark_judge")
            for name in self.servers_named(backend, model)
        }
        ray = self.cluster.ray.address if self.cluster and self.cluster.ray else None
        return GpuAssignment(self, self.training, frozenset(names), ray)

    @property
    def round_training(self) -> TrainingSettings | None:
        """Section `training` as rounds train."""
        if self.training is None or self.rounds is None:
            return None
        changes = {"planner_rl": None, **self.rounds.training}
        return TrainingSettings.model_validate(merged(self.training.model_dump(), changes))

    def shards(self, size: str) -> int:
        """Shards of the pack for a size; FoundryError if the profile has no such size."""
        if size not in self.sizes:
            known = ", ".join(self.sizes)
            raise FoundryError(f"profile {self.name} has no size '{size}'; its sizes: {known}")
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
        return self.model_validate({**merged(self.model_dump(), changes), "size_changes": {}})

    def without_keys(self) -> Self:
        """The same models at endpoints without keys: to name and to price them, not to call.

        Agents that were not downloaded yet are stood for by their ids, on the same GPUs.
        """
        values = _with_endpoints(self.model_dump(), lambda endpoint: {**endpoint, "key": None})
        for role in ("planner", "critic"):
            reference = getattr(self.section(CheckpointBackend), role) or ""
            if getattr(self.roles, role) != "checkpoint" or not is_at_hub_alone(reference):
                continue
            server = self.trained_server(role)
            count = len(self.servers[server].gpus) if server else 1
            endpoint = {"url": "http://localhost", "gpus": count}
            values["roles"][role] = "openai"
            values["openai"][role] = {"model": reference, "endpoints": [endpoint]}
            values["prices"].setdefault(reference, {"input": 0, "output": 0})
        return self.model_validate(values)

    def share(self, number: int, processes: int) -> Self:
        """The profile with the limits of one of so many processes that make shards at the same
        time, at least one call each: 30 of them are not to send 30 times as many calls.

        Shares add up to what the profile allows for as many processes as `most_processes` says.

        `number`: of the process, from 0.
        """

        def share(total: int) -> int:
            return max(1, total // processes + (number < total % processes))

        values = _with_endpoints(
            self.model_dump(), lambda each: {**each, "concurrency": share(each["concurrency"])}
        )
        for section, names in _IN_FLIGHT.items():
            limits = values.get(section) or {}
            limits |= {name: share(limits[name]) for name in names if limits.get(name)}
        return self.model_validate(values)

    @property
    def most_processes(self) -> int | None:
        """Processes that can share the limits of endpoints; None: no endpoint is called."""
        found: list[int] = []
        for backend, roles in self.bound.items():
            for role in set(roles) & set(LOOP_ROLES):
                section = self.apis.get(backend)
                if section and (model := section.model_of(role)):
                    endpoints = section.endpoints_of(model)
                    found.append(min(endpoint.concurrency for endpoint in endpoints))
                    limits = self.limits
                    found.append(limits.generator if role == "generator" else limits.agents)
        return min(found, default=None)

    @model_validator(mode="before")
    @classmethod
    def _servers_are_where_runs_are(cls, values: Any) -> Any:
        """With `cluster.ray` they are on its nodes; their GPUs cost what those of trainings do."""
        if not isinstance(values, dict) or not isinstance(values.get("servers"), dict):
            return values
        address = value_at(values, "cluster", "ray", "address")
        price = value_at(values, "training", "gpu_hour_usd")
        shared: dict[str, Any] = {"ray": address} if isinstance(address, str) else {}
        if isinstance(price, int | float) and price >= 0:  # else it is refused where it is
            shared["gpu_hour_usd"] = price
        servers = {
            name: {**shared, **server} if isinstance(server, dict) else server
            for name, server in values["servers"].items()
        }
        return {**values, "servers": servers}

    @model_validator(mode="before")
    @classmethod
    def _imports_are_mixed_in(cls, values: Any) -> Any:
        """An import to which no mix gives a weight occurs once, beside what was made here."""
        imports = value_at(values, "imports")
        for name, settings in imports.items() if isinstance(imports, dict) else ():
            path = "curation", "exports", "mix", str(value_at(settings, "kind"))
            mix = value_at(values, *path) or {OURS: 1}
            if path[-1] in MixSettings.model_fields and isinstance(mix, dict):
                values = merged(values, nested({name: 1} | mix, *path))
        return values

    @model_validator(mode="after")
    def _size_changes_are_valid(self) -> Self:
        for size in self.size_changes:
            if size not in self.sizes:
                raise ValueError(f"size_changes.{size}: there is no such size in `sizes`")
            try:
                self.at_size(size)
            except ValidationError as error:
                raise ValueError(first_problem(error, "size_changes", size)) from None
        return self

    @model_validator(mode="after")
    def _targets_count_every_row_once(self) -> Self:
        for name in self.targets if self.curation.exports.mix else ():
            if getattr(self.curation.exports.mix, name).get(OURS) != 1:
                raise ValueError(
                    f"targets.{name}: curation.exports.mix.{name} has to have {OURS}: 1, since a "
                    "target counts every row of the set once"
                )
        return self

    @model_validator(mode="after")
    def _round_changes_are_valid(self) -> Self:
        try:
            _ = self.round_training
        except ValidationError as error:
            raise ValueError(first_problem(error, "rounds", "training")) from None
        if self.rounds and "planner_rl" in self.rounds.training:
            raise ValueError(
                "rounds.training.planner_rl: rounds reinforce the critic alone: remove"
            )
        return self

    @model_validator(mode="after")
    def _servers_fit(self) -> Self:
        for key, _, backend, model in self.side_models:
            self.check_servers(key, backend, model)
        if problem := next(self.gpu_assignment.contradictions(), None):
            raise ValueError(problem)
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _for_this_machine(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Validates the profile of every number of GPUs in `on_gpus`; returns this machine's.

        It has to follow the others, to include them.
        """
        changes = values.get("on_gpus") if isinstance(values, dict) else None
        if not isinstance(changes, dict) or not changes:
            return validate(values)
        base = {key: value for key, value in values.items() if key != "on_gpus"}
        profiles = {0: validate({**base, "on_gpus": {}})}
        validate_changes = TypeAdapter(dict[PositiveInt, dict[str, Any]]).validate_python
        for count, changed in validate_changes(changes).items():
            try:
                profiles[count] = validate(merged(base, changed))
            except ValidationError as error:
                raise ValueError(first_problem(error, "on_gpus", str(count))) from None
        return profiles[max(count for count in profiles if count <= gpus())]

    @model_validator(mode="before")
    @classmethod
    def _based_on_another(cls, values: Any) -> Any:
        """With `base`, what another profile says where this one says nothing; then what components
        bring.

        It comes after all other validators, to run before them.
        """
        seen = []
        while isinstance(values, dict) and "base" in values:
            base = values["base"]
            if not isinstance(base, str) or base in seen:
                raise ValueError("base: name a profile, or the path of a .yaml file, not this one")
            seen.append(base)
            changes = {key: value for key, value in values.items() if key != "base"}
            values = merged(read_yaml(_path_of(base)), changes)
        if isinstance(values, dict) and values.get("components", True) is True:
            values = {**with_additions(values), "components": False}
        return values


def _with_endpoints(values: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Settings with every endpoint changed."""
    match values:
        case {"url": _, "key": _}:
            return change(values)
        case dict():
            return {name: _with_endpoints(value, change) for name, value in values.items()}
        case list():
            return [_with_endpoints(value, change) for value in values]
    return values


@cache
def load_profile(name: str) -> Profile:
    """A packaged profile by name, or any YAML file by path; FoundryError if there is none."""
    return load_document(_path_of(name), Profile)


def _path_of(name: str) -> Path:
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.yaml")))
        raise FoundryError(f"no profile '{name}'; there are: {known}, or give a .yaml file")
    return path
