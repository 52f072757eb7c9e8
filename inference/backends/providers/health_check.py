"""Whether endpoints answer: they are asked for their models, which costs nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from schemas import FoundryError

from ..factory import Backends
from .endpoints import EndpointSettings

PROVIDERS = ("openai", "gemini", "images")

_REFUSED = (401, 403)
_AUTHORIZATION = {"gemini": ("x-goog-api-key", "{}")}
_OPENAI, _GEMINI = "https://api.openai.com/v1", "https://generativelanguage.googleapis.com"


@dataclass(frozen=True)
class Reach:
    """How an endpoint answered. `problem`: what is wrong and what to do; None: nothing is."""

    url: str
    answers: bool = True
    problem: str | None = None


def reach(backend: str, endpoint: EndpointSettings, key: str | None, seconds: float) -> Reach:
    """Whether an endpoint of a backend lists its models to a key."""
    url = _models_url(backend, endpoint)
    request = Request(url)
    if key:
        name, value = _AUTHORIZATION.get(backend, ("Authorization", "Bearer {}"))
        request.add_header(name, value.format(key))
    try:
        with urlopen(request, timeout=seconds):
            return Reach(url)
    except HTTPError as error:
        refused = error.code in _REFUSED and key is not None
        problem = f"it refuses the key in {endpoint.key}: {error.code}" if refused else None
        return Reach(url, problem=problem)
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        problem = f"no answer ({reason}): start it, or correct `{backend}.endpoints`"
        return Reach(url, answers=False, problem=problem)


def trouble(backends: Backends, names: Mapping[str, str], seconds: float) -> str | None:
    """Why players cannot answer now, in one line; None: each of them has an endpoint that does.

    Args:
        names: role -> player, as `name_of` says them; those in this process always answer.
    """
    problem = cache(partial(_problem, seconds=seconds))  # roles may share an endpoint
    for role, name in names.items():
        backend = name.partition("/")[0]
        if backend in PROVIDERS:
            settings = getattr(backends, backend)
            places = settings.endpoints_of(getattr(settings, role, None))
            problems = [problem(backend, place) for place in places]
            if all(problems):
                return f"{role}: {problems[0]}"
    return None


def _problem(backend: str, endpoint: EndpointSettings, seconds: float) -> str | None:
    try:
        found = reach(backend, endpoint, endpoint.secret(), seconds)
    except FoundryError as error:
        return str(error)
    return found.problem and f"{found.url}: {found.problem}"


def _models_url(backend: str, endpoint: EndpointSettings) -> str:
    if backend == "gemini":
        return f"{(endpoint.url or _GEMINI).rstrip('/')}/v1beta/models"
    return f"{(endpoint.url or _OPENAI).rstrip('/')}/models"
