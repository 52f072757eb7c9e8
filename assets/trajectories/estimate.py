"""What telling so many shards would take: calls, tokens, money, hours and disk, before any of it.

Averages of this home's calls of the same models count; where there are none, marked assumptions.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from inference.backends.providers.prices import Price
from inference.backends.providers.settings import ImagesSettings, ProviderSettings, RemoteModel
from inference.engine.ensemble import Ensemble
from inference.roles import Backend, qualified_name
from schemas.prompts import VOCABULARY_PROPOSALS
from schemas.trajectories import LOOP_ROLES, TRAJECTORIES, Role
from training.environments import gpus as gpus_here
from warehouse import Home
from warehouse.views import connect

from ..core.foundry import FoundryResource
from ..prompts.assets import packs_of
from ..prompts.expansion.bank_requests import bank_briefs
from ..prompts.user_requests import is_request_shard, requests_without_trajectories

_STORY_ATTEMPTS = 9.0  # of a story of six drawn steps, half of which are drawn once more
_PICTURE_MB = 1.6  # a PNG of 1024 x 1024 pixels
_SECONDS_AN_HOUR = 3600


@dataclass(frozen=True)
class _Call:
    """An average call. `seen`: calls that it is the average of; 0: it is assumed."""

    input_tokens: float
    output_tokens: float
    seconds: float
    seen: int = 0


_ASSUMED: dict[Role, _Call] = {
    "planner": _Call(800, 2500, 30),
    "generator": _Call(1500, 1200, 20),
    "critic": _Call(3500, 900, 15),
    "scorer": _Call(3500, 700, 15),
    "expander": _Call(900, 2000, 25),
}


@dataclass(frozen=True)
class RoleEstimate:
    """What one role takes.

    Attributes:
        hours: of wall time, were it the only role at work with all of its slots.
        gpu_hours: those hours times the GPUs that work meanwhile.
        usd: None: its model has no price in the profile.
        seen: calls of this model in this home, whose averages these are; 0: assumptions.
    """

    role: Role
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    hours: float
    gpu_hours: float
    usd: float | None
    seen: int


@dataclass(frozen=True)
class Estimate:
    """What bringing a size of a profile up to date takes."""

    stories: int
    roles: tuple[RoleEstimate, ...]
    disk_gb: float

    @property
    def usd(self) -> float:
        return sum(role.usd or 0.0 for role in self.roles)

    @property
    def gpu_hours(self) -> float:
        return sum(role.gpu_hours for role in self.roles)


def estimate(foundry: FoundryResource, shards: int) -> Estimate:
    """For the first `shards` shards, without those that are told already."""
    told = foundry.home.lake.partitions(TRAJECTORIES)
    missing = max(0, shards - sum(not is_request_shard(shard) for shard in told))
    stories = missing * foundry.settings.bank.shard_size + requests_without_trajectories(foundry)
    attempts = stories * _attempts_of_a_story(foundry.home)
    roles = (*_expander(foundry), *_roles(foundry, stories, round(attempts)))
    return Estimate(stories, roles, attempts * _picture_mb(foundry) / 1000)


def _roles(foundry: FoundryResource, stories: int, attempts: int) -> Iterator[RoleEstimate]:
    calls: dict[Role, int] = {
        "planner": stories,
        "generator": attempts,
        "critic": attempts,
        "scorer": attempts,
    }
    for role, player in _players(foundry):
        model = getattr(getattr(foundry.settings, player.backend), role, None)
        yield _estimated(foundry, role, qualified_name(player), model, calls[role])


def _players(foundry: FoundryResource) -> Iterator[tuple[Role, Backend]]:
    """Who is called in each role: all members, where scorers are an ensemble."""
    for role in LOOP_ROLES:
        player = getattr(foundry.roles, role)
        if isinstance(player, Ensemble):
            yield from ((role, member.scorer) for member in player.members)
        else:
            yield role, player


def _expander(foundry: FoundryResource) -> Iterator[RoleEstimate]:
    """A call a bank, unless they were made."""
    expansion = foundry.settings.prompts.expansion
    if expansion and not foundry.home.lake.partitions(VOCABULARY_PROPOSALS):
        banks = sum(len(bank_briefs(pack, 1)) for pack in packs_of(foundry))
        name = f"{expansion.backend}/{expansion.model.identity}"
        yield _estimated(foundry, "expander", name, expansion.model, banks)


def _estimated(
    foundry: FoundryResource, role: Role, name: str, model: object, count: int
) -> RoleEstimate:
    """Of `count` calls. `model`: what the profile says of it."""
    limits = foundry.settings.limits
    call = _seen(foundry.home, role, name) or _ASSUMED[role]
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
        usd=_usd(_price(foundry, model), role, count, call),
        seen=call.seen,
    )


def _gpus(foundry: FoundryResource, backend: str, model: object) -> int:
    """GPUs of ours that work while a model is called."""
    settings = getattr(foundry.settings, backend, None)
    if isinstance(model, RemoteModel) and isinstance(settings, ProviderSettings | ImagesSettings):
        return sum(place.gpus for place in settings.endpoints_of(model))
    device = getattr(settings, "device", "cpu")
    return int(device != "cpu" and (device != "auto" or gpus_here() > 0))


def _usd(price: Price | None, role: Role, count: int, call: _Call) -> float | None:
    if price is None:
        return None
    drawn = int(role == "generator")
    one = price.cost(round(call.input_tokens), round(call.output_tokens), pictures=drawn)
    return count * one


def _price(foundry: FoundryResource, model: object) -> Price | None:
    """Of a provider's model; what runs here itself costs nothing."""
    prices = foundry.settings.prices
    return prices.get(model.model) if isinstance(model, RemoteModel) else Price()


def _seen(home: Home, role: Role, model: str) -> _Call | None:
    """The average of the calls that a model has answered here."""
    found = _rows(
        home,
        "SELECT avg(coalesce(input_tokens, 0)), avg(coalesce(output_tokens, 0)), avg(seconds), "
        "count(*) FROM model_calls WHERE NOT cached AND error IS NULL AND role = ? "
        "AND backend || '/' || model = ?",
        role,
        model,
    )
    (inputs, outputs, seconds, count) = found[0]
    return _Call(inputs, outputs, seconds, count) if count else None


def _attempts_of_a_story(home: Home) -> float:
    sql = "SELECT count(*), count(DISTINCT prompt_id) FROM attempts"
    ((attempts, stories),) = _rows(home, sql)
    return attempts / stories if stories else _STORY_ATTEMPTS


def _picture_mb(foundry: FoundryResource) -> float:
    """The sketch world's pictures are tiny; all others are taken for full ones."""
    if foundry.settings.roles.generator != "sketch":
        return _PICTURE_MB
    side = foundry.settings.sketch.picture_size
    return side * side * 0.25e-6


def _rows(home: Home, sql: str, *values: str) -> list[tuple[Any, ...]]:
    with closing(connect(home)) as connection:
        return connection.execute(sql, list(values)).fetchall()
