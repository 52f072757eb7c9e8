"""Checks that providers' endpoints answer, by listing their models, which costs nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from schemas import FoundryError

from .factory import Backends
from .providers.settings import ApiSettings, EndpointSettings

_REJECTED_KEY = (401, 403)


@dataclass(frozen=True)
class EndpointHealth:
    """The result of a check. `problem`: what is wrong and what to do; None: nothing."""

    url: str
    is_reachable: bool = True
    problem: str | None = None


def check_endpoint(
    backend: ApiSettings, endpoint: EndpointSettings, key: str | None, timeout_seconds: float
) -> EndpointHealth:
    """Whether an endpoint of a backend lists its models for a key."""
    own_url, path, header, prefix = backend.api
    url = f"{(endpoint.url or own_url).rstrip('/')}{path}"
    request = Request(url, headers={header: f"{prefix}{key}"} if key else {})
    try:
        with urlopen(request, timeout=timeout_seconds):
            return EndpointHealth(url)
    except HTTPError as error:
        is_rejected = error.code in _REJECTED_KEY and key is not None
        problem = f"it rejects the key in {endpoint.key}: {error.code}" if is_rejected else None
        return EndpointHealth(url, problem=problem)
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        problem = f"no answer ({reason}): start it, or correct `{backend.backend}.endpoints`"
        return EndpointHealth(url, is_reachable=False, problem=problem)


def first_failure(
    backends: Backends, names: Mapping[str, str], timeout_seconds: float
) -> str | None:
    """Why agents cannot answer now, in one line; None: each has an endpoint that answers.

    Args:
        names: role -> agent, as `qualified_name` writes it; those in this process always answer.
    """

    @cache  # roles share endpoints
    def problem(backend: str, endpoint: EndpointSettings) -> str | None:
        try:
            health = check_endpoint(
                backends.apis[backend], endpoint, endpoint.secret(), timeout_seconds
            )
        except FoundryError as error:
            return str(error)
        return health.problem and f"{health.url}: {health.problem}"

    for role, name in names.items():
        backend = name.partition("/")[0]
        if settings := backends.apis.get(backend):
            first = getattr(settings, role, None)
            for model in filter(None, (first or settings, getattr(first, "edit", None))):
                # A server of ours is started by the first call.
                endpoints = settings.endpoints_of(model if model is not settings else None)
                problems = [None if one.server else problem(backend, one) for one in endpoints]
                if all(problems):
                    return f"{role}: {problems[0]}"
    return None
