"""What the model of the factory is given: costs with their sources, and hardware with its limits.

Both are YAML files, read into these models; a wrong key is an error that names file and line.
"""

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from schemas import DocumentError
from schemas.yaml_config import ConfigModel, load_document, read_yaml

Role = Literal["planner", "generator", "critic", "scorer"]
Images = Literal["single", "packed"]

FOLDER = Path(__file__).parent
COSTS = FOLDER / "costs.yaml"
MEASURED = FOLDER / "measured.yaml"
HARDWARE = FOLDER / "hardware"

_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kM]?)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}


class Quantity(ConfigModel):
    """A number, its unit, and where it comes from."""

    value: float = Field(ge=0)
    unit: str = Field(min_length=1)
    source: str = Field(
        pattern="^(measured|published|assumption)",
        description="`measured` (how), `published` (where, when), or `assumption` (why)",
    )
    error: float = Field(
        0.0, ge=0, le=2, description="Relative standard deviation of what the true value may be"
    )


class CallCosts(ConfigModel):
    """Calls of one role by one model."""

    calls: float = Field(1.0, gt=0, description="Per prompt (planner) or per attempt (others)")
    seconds: Quantity = Field(description="Of a call whose server has a free slot")
    spread: float = Field(0.0, ge=0, description="Standard deviation of `seconds`, relative")
    cpu_seconds: Quantity = Field(description="CPU of the run's process, images included")
    input_tokens: Quantity | None = None
    output_tokens: Quantity | None = None

    @property
    def tokens(self) -> float:
        return sum(part.value for part in (self.input_tokens, self.output_tokens) if part)


class ModelCosts(ConfigModel):
    """A model: what its calls take, by role, and its price in USD per million tokens."""

    roles: dict[Role, CallCosts]
    input_price: Quantity | None = None
    output_price: Quantity | None = None

    def usd(self, role: Role) -> float:
        """Of one call."""
        call = self.roles[role]
        parts = ((call.input_tokens, self.input_price), (call.output_tokens, self.output_price))
        return sum(tokens.value * price.value for tokens, price in parts if tokens and price) / 1e6


class Workload(ConfigModel):
    """What a prompt becomes."""

    attempts: Quantity = Field(description="Generator calls per prompt")
    attempts_spread: float = Field(ge=0, description="Standard deviation of them, relative")
    images: Quantity = Field(description="Distinct images per attempt")
    image_megabytes: Quantity
    row_kilobytes: Quantity = Field(description="Rows of all tables per attempt, as stored")
    journal_kilobytes: Quantity = Field(description="Journal lines of all calls, per attempt")


class EngineCosts(ConfigModel):
    """A process, a Dagster run, a shard."""

    process_cpu_seconds: Quantity = Field(description="Of `interleave run` with nothing to do")
    worker_cpu_seconds: Quantity = Field(description="To start a worker process of a command")
    run_cpu_seconds: Quantity = Field(description="Of a Dagster run, its checks and records")
    run_seconds: Quantity = Field(description="Start of a run that is a Ray job")
    noop_seconds: Quantity = Field(description="Per shard, to see that it is up to date")
    table_files: Quantity = Field(description="Files of tables per shard")
    journals: Quantity = Field(description="Journals per shard")
    history_kilobytes: Quantity = Field(description="Dagster's history, per run")
    memory_gb: Quantity = Field(description="Of a run's process, with a shard of 100")
    memory_megabytes_per_prompt: Quantity = Field(description="More, per prompt of its shard")


class StorageCosts(ConfigModel):
    """An object store; a local disk has no requests, and costs nothing."""

    put_seconds: Quantity = Field(description="Of a small PUT, as the process sees it")
    put_usd_per_million: Quantity
    get_usd_per_million: Quantity
    usd_per_gb_month: Quantity
    appends: Quantity = Field(description="Journal lines per call")


class CurationCosts(ConfigModel):
    """From scores to the four training sets."""

    cpu_seconds_per_million: Quantity = Field(description="Of attempts")
    memory_gb: Quantity
    memory_gb_per_million: Quantity = Field(description="More, per million attempts")


class Thresholds(ConfigModel):
    """Where the factory stops being usable."""

    partitions: Quantity = Field(description="Of one asset in Dagster")
    objects: Quantity = Field(description="That can be listed in a reasonable time")
    history_gb: Quantity = Field(description="Of Dagster's history")
    noop_seconds: Quantity = Field(description="`interleave run` with nothing to do")


class Costs(ConfigModel):
    """costs.yaml."""

    workloads: dict[str, Workload]
    models: dict[str, ModelCosts]
    engine: EngineCosts
    storage: StorageCosts
    curation: CurationCosts
    thresholds: Thresholds


class ModelServer(ConfigModel):
    """Who answers the calls of a model: GPUs of one's own, or a provider with its limits."""

    gpus: int = Field(0, ge=0)
    slots_per_gpu: int = Field(1, ge=1, description="Calls at once on one GPU")
    concurrency: int | None = Field(None, ge=1, description="Of a provider: calls at once")
    requests_per_minute: PositiveFloat | None = None
    tokens_per_minute: PositiveFloat | None = None
    usd_per_month: PositiveFloat | None = Field(None, description="The provider's spending cap")
    errors: float = Field(0.0, ge=0, lt=1, description="Share of tries that fail and are repeated")
    price: float = Field(1.0, gt=0, le=1, description="Share of the list price (batch: 0.5)")
    limits: str = Field("", description="Where the limits come from")

    @property
    def slots(self) -> int | None:
        """Calls at once; None: as many as come."""
        return self.gpus * self.slots_per_gpu or self.concurrency


class Hardware(ConfigModel):
    """Machines, the runs on them, the models that are used and who serves them."""

    description: str
    machines: PositiveInt = 1
    cores: PositiveInt = Field(description="Of one machine")
    memory_gb: PositiveFloat = Field(description="Of one machine")
    disk_gb: PositiveFloat = Field(1_000, description="For a home on a local disk")
    usd_per_machine_hour: float = Field(0.0, ge=0)
    usd_per_gpu_hour: float = Field(0.0, ge=0)
    runs: PositiveInt = Field(description="Shards at once")
    cores_per_run: PositiveInt = 1
    shards_per_run: PositiveInt = 1
    ray_jobs: bool = Field(False, description="Every run is a Ray job, which has to start")
    workload: str = Field("real", description="What its prompts become, as costs.yaml names it")
    staggered: bool = Field(
        False, description="Runs start one by one, so that their stages are not in step"
    )
    generator_slots: PositiveInt = Field(4, description="`limits.generator` of the profile")
    agent_slots: PositiveInt = Field(8, description="`limits.agents` of the profile")
    storage: Literal["local", "s3"] = "local"
    roles: dict[Role, str] = Field(description="Model of each role, as costs.yaml names it")
    servers: dict[str, ModelServer] = Field(
        default_factory=dict, description="By model; one without works in the run's own process"
    )
    days: PositiveFloat = Field(30, description="Wanted: finished in so many days")
    usd: PositiveFloat = Field(100_000, description="Wanted: for so much money")

    @model_validator(mode="after")
    def _all_roles(self) -> "Hardware":
        if missing := {"planner", "generator", "critic", "scorer"} - set(self.roles):
            raise ValueError(f"roles has no model for {', '.join(sorted(missing))}: name one")
        if unused := set(self.servers) - set(self.roles.values()):
            raise ValueError(f"servers names {', '.join(sorted(unused))}, which no role uses")
        return self

    @property
    def in_flight(self) -> int:
        """Prompts of a shard that are worked on at once, as `inference.settings.Limits`."""
        return 2 * self.generator_slots + self.agent_slots

    @property
    def gpus(self) -> int:
        return sum(server.gpus for server in self.servers.values())


def load_costs(path: Path = COSTS, measured: Path = MEASURED) -> Costs:
    """Costs that are published or assumed, and those that were measured on the sketch world.

    Raises:
        DocumentError: a file cannot be read, or a value is missing or wrong.
    """
    content = _merged(read_yaml(path), read_yaml(measured) if measured.exists() else {})
    try:
        return Costs.model_validate(content)
    except ValidationError as error:
        lines = (".".join(map(str, e["loc"])) + f": {e['msg']}" for e in error.errors())
        raise DocumentError(
            "\n".join(f"{path} with {measured}: {line}" for line in lines)
        ) from error


def _merged(one: Any, other: Any) -> Any:
    """Mappings key by key; where both have another value, the second one's."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other
    return one | {key: _merged(one.get(key), value) for key, value in other.items()}


def load_hardware(name: str, costs: Costs) -> Hardware:
    """Hardware by file, or by the name of one in `hardware/`, with or without `.yaml`.

    Raises:
        DocumentError: there is none, or it names a model or role that the costs lack.
    """
    path = Path(name)
    if not path.exists():
        path = HARDWARE / f"{path.stem}.yaml"
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in HARDWARE.glob("*.yaml")))
        raise DocumentError(f"no hardware {name}: give a file, or one of {known}")
    hardware = load_document(path, Hardware)
    if hardware.workload not in costs.workloads:
        raise DocumentError(f"{path}: workload: the costs have no workload {hardware.workload}")
    for role, model in hardware.roles.items():
        if model not in costs.models or role not in costs.models[model].roles:
            raise DocumentError(f"{path}: roles.{role}: the costs have no {role} {model}")
    return hardware


def parse_count(text: str) -> int:
    """`10k`, `1M`, `250` or `2.5M` as a number; ValueError: none of these."""
    match = _COUNT.fullmatch(text.strip())
    if not match or not (count := round(float(match[1]) * _FACTORS[match[2].lower()])):
        raise ValueError(f"{text!r} is not a number of prompts, such as 250, 10k or 1M")
    return count
