"""A process's part of a profile's limits, where several processes make shards at the same time.

Without it, 30 processes would send 30 times as many calls as the profile allows, to servers and
providers that admit so many once.
"""

from collections.abc import Callable, Iterator
from typing import Any

from inference.backends.providers.settings import EndpointSettings, RemoteModel
from inference.settings import Limits
from schemas.trajectories import LOOP_ROLES

from .profile import Profile

_IN_FLIGHT = {"limits": ("generator", "agents", "trajectories_in_flight"), "rounds": ("in_flight",)}


def share_of(profile: Profile, number: int, processes: int) -> Profile:
    """The profile with the limits of one of so many processes, at least one call each.

    Shares add up to what the profile allows for as many processes as `most_processes` says.

    Args:
        number: of the process, from 0.
    """

    def share(total: int) -> int:
        return max(1, total // processes + (number < total % processes))

    values = _divided(profile.model_dump(), share)
    for section, names in _IN_FLIGHT.items():
        limits = values.get(section) or {}
        limits |= {name: share(limits[name]) for name in names if limits.get(name)}
    return profile.model_validate(values)


def most_processes(profile: Profile) -> int | None:
    """Processes that can share the limits of calls to endpoints; None: no endpoint is called."""
    return min(_smallest_limits(profile), default=None)


def _divided(values: Any, share: Callable[[int], int]) -> Any:
    match values:
        case {"url": _, "key": _, "concurrency": concurrency}:  # an endpoint
            return {**values, "concurrency": share(concurrency)}
        case dict():
            return {name: _divided(value, share) for name, value in values.items()}
        case list():
            return [_divided(value, share) for value in values]
    return values


def _smallest_limits(profile: Profile) -> Iterator[int]:
    limits: Limits = profile.limits
    for backend, roles in profile.bound.items():
        for role in set(roles) & set(LOOP_ROLES):
            model = getattr(getattr(profile, backend, None), role, None)
            if isinstance(model, RemoteModel):
                endpoints: list[EndpointSettings] = getattr(profile, backend).endpoints_of(model)
                yield min(endpoint.concurrency for endpoint in endpoints)
                yield limits.generator if role == "generator" else limits.agents
