"""Estimates the calls, tokens, money, hours and disk space of a number of shards, before they run.

Calls are taken to be like the average call of the same model in this home; where there was none,
assumptions are used, and marked as such.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from inference.backends.providers.settings import (
    ImagesSettings,
    Price,
    ProviderSettings,
    RemoteModel,
)
from inference.engine.ensemble import Ensemble
from inference.roles import Backend, qualified_name
from schemas.prompts import VOCABULARY_PROPOSALS
from schemas.trajectories import LOOP_ROLES, TRAJECTORIES, Role
from training.environments import gpus as gpus_here
from warehouse import Home
from warehouse.views import connect

from ..core.foundry import FoundryResource
from ..prompts.assets import load_packs
from ..prompts.expansion.bank_requests import bank_requests
from ..prompts.user_requests import is_request_shard, requests_without_trajectories

_ATTEMPTS_PER_TRAJECTORY = 9.0  # six steps with an image, half of which take a second attempt
_IMAGE_MB = 1.6  # a PNG of 1024 x 1024 pixels
_SECONDS_AN_HOUR = 3600


@dataclass(frozen=True)
class _Call:
    """An average call. `measured`: number of calls averaged; 0: the values are assumptions."""

    input_tokens: float
    output_tokens: float
    seconds: float
    measured: int = 0


_ASSUMED: dict[Role, _Call] = {
    "planner": _Call(800, 2500, 30),
    "generator": _Call(1500, 1200, 20),
    "critic": _Call(3500, 900, 15),
    "scorer": _Call(3500, 700, 15),
    "expander": _Call(900, 2000, 25),
}


@dataclass(frozen=True)
class RoleEstimate:
    """The share of one role.

    Attributes:
        hours: wall time if this role alone used all of its slots.
        gpu_hours: `hours` times the GPUs that serve the model.
        usd: None: the profile has no price for the model.
        measured: calls of this model in this home that were averaged; 0: assumptions.
    """

    role: Role
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    hours: float
    gpu_hours: float
    usd: float | None
    measured: int


@dataclass(frozen=True)
class Estimate:
    """What it takes to bring a size of a profile up to date; `disk_gb` is that of the images."""

    trajectories: int
    roles: tuple[RoleEstimate, ...]
    disk_gb: float

    @property
    def usd(self) -> float:
        return sum(role.usd or 0.0 for role in self.roles)

    @property
    def gpu_hours(self) -> float:
        return sum(role.gpu_hours for role in self.roles)


def estimate(foundry: FoundryResource, shards: int) -> Estimate:
    """Estimate the first `shards` shards, less those that have trajectories."""
    finished = foundry.home.lake.partitions(TRAJECTORIES)
    missing = max(0, shards - sum(not is_request_shard(shard) for shard in finished))
    trajectories = missing * foundry.settings.bank.shard_size
    trajectories += requests_without_trajectories(foundry)
    attempts = trajectories * _attempts_per_trajectory(foundry.home)
    roles = (*_expander_role(foundry), *_loop_roles(foundry, trajectories, round(attempts)))
    return Estimate(trajectories, roles, attempts * _image_mb(foundry) / 1000)


def _loop_roles(
    foundry: FoundryResource, trajectories: int, attempts: int
) -> Iterator[RoleEstimate]:
    for role, backend in _backends(foundry):
        model = getattr(getattr(foundry.settings, backend.backend), role, None)
        calls = trajectories if role == "planner" else attempts
        yield _role_estimate(foundry, role, qualified_name(backend), model, calls)


def _backends(foundry: FoundryResource) -> Iterator[tuple[Role, Backend]]:
    """The backend of each role, and every member of an ensemble of scorers."""
    for role in LOOP_ROLES:
        backend = getattr(foundry.roles, role)
        if isinstance(backend, Ensemble):
            yield from ((role, member.scorer) for member in backend.members)
        else:
            yield role, backend


def _expander_role(foundry: FoundryResource) -> Iterator[RoleEstimate]:
    """One call per bank, unless there are proposals already."""
    expansion = foundry.settings.prompts.expansion
    if expansion and not foundry.home.lake.partitions(VOCABULARY_PROPOSALS):
        banks = sum(len(bank_requests(pack, 1)) for pack in load_packs(foundry))
        name = f"{expansion.backend}/{expansion.model.identity}"
        yield _role_estimate(foundry, "expander", name, expansion.model, banks)


def _role_estimate(
    foundry: FoundryResource, role: Role, name: str, model: object, count: int
) -> RoleEstimate:
    """Estimate `count` calls. `model`: the model's settings in the profile."""
    limits = foundry.settings.limits
    call = _measured_call(foundry.home, role, name) or _ASSUMED[role]
    slots = limits.generator if role == "generator" else limits.agents
    hours = count * call.seconds / slots / _SECONDS_AN_HOUR
    return RoleEstimate(
        role=role,
        model=name,
        calls=count,
        input_tokens=round(count * call.input_tokens),
        output_tokens=round(count * call.output_tokens),
        hours=hours,
        gpu_hours=hours * _gpus(foundry, name.partition("/")[0], model),
        usd=_usd(foundry, model, role, count, call),
        measured=call.measured,
    )


def _gpus(foundry: FoundryResource, backend: str, model: object) -> int:
    """GPUs of our own machines that serve a model."""
    settings = getattr(foundry.settings, backend, None)
    if isinstance(model, RemoteModel) and isinstance(settings, ProviderSettings | ImagesSettings):
        return sum(endpoint.gpus for endpoint in settings.endpoints_of(model))
    device = getattr(settings, "device", "cpu")
    return int(device != "cpu" and (device != "auto" or gpus_here() > 0))


def _usd(
    foundry: FoundryResource, model: object, role: Role, count: int, call: _Call
) -> float | None:
    """USD of all calls; None: the provider's model has no price. Local models cost nothing."""
    prices = foundry.settings.prices
    price = prices.get(model.model) if isinstance(model, RemoteModel) else Price()
    if price is None:
        return None
    images = int(role == "generator")
    cost_per_call = price.cost(round(call.input_tokens), round(call.output_tokens), images=images)
    return count * cost_per_call


def _measured_call(home: Home, role: Role, model: str) -> _Call | None:
    """The average of the calls that a model has answered in this home."""
    ((inputs, outputs, seconds, count),) = _query(
        home,
        "SELECT avg(coalesce(input_tokens, 0)), avg(coalesce(output_tokens, 0)), avg(seconds), "
        "count(*) FROM model_calls WHERE NOT cached AND error IS NULL AND role = ? "
        "AND backend || '/' || model = ?",
        role,
        model,
    )
    return _Call(inputs, outputs, seconds, count) if count else None


def _attempts_per_trajectory(home: Home) -> float:
    sql = "SELECT count(*), count(DISTINCT prompt_id) FROM attempts"
    ((attempts, prompts),) = _query(home, sql)
    return attempts / prompts if prompts else _ATTEMPTS_PER_TRAJECTORY


def _image_mb(foundry: FoundryResource) -> float:
    """Megabytes of an image; all but the sketch world's are taken to be 1024 x 1024 pixels."""
    if foundry.settings.roles.generator != "sketch":
        return _IMAGE_MB
    side = foundry.settings.sketch.picture_size
    return side * side * 0.25e-6


def _query(home: Home, sql: str, *values: str) -> list[tuple[Any, ...]]:
    with closing(connect(home)) as connection:
        return connection.execute(sql, list(values)).fetchall()
