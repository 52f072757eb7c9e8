"""What an images server says of its models, in `/v1/models`: asked once per endpoint."""

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from pydantic import BaseModel, ValidationError

from ..generator_limits import GeneratorLimits
from .dialects import DialectName, dialect_of_owner

_TIMEOUT_SECONDS = 3.0
_MAX_BYTES = 2**20
_ASK_AGAIN_SECONDS = 60.0  # after no answer


class ModelCard(BaseModel, extra="ignore", frozen=True):
    """A model of a server: `limits` are ours, `root` vLLM-Omni's, the last two SGLang's."""

    id: str
    owned_by: str | None = None
    root: str | None = None
    limits: GeneratorLimits | None = None
    task_type: str | None = None
    pipeline_class: str | None = None

    @property
    def dialect(self) -> DialectName:
        return dialect_of_owner(self.owned_by)


class _ModelList(BaseModel, extra="ignore"):
    data: tuple[ModelCard, ...] = ()


# By base URL.
_answers: dict[str, tuple[ModelCard, ...]] = {}
_silent_until: dict[str, float] = {}
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def model_card(url: str, key: str | None, model: str) -> ModelCard | None:
    """What a server says of a model; None: nothing. It may wait for seconds: not in event loops.

    Args:
        url: base URL of the API, such as http://127.0.0.1:8010/v1
        key: the key itself.
    """
    return _named(_cards(url.rstrip("/"), key), model)


def known_card(url: str, model: str) -> tuple[bool, ModelCard | None]:
    """Whether the server was asked already, and what it said; asks nobody."""
    url = url.rstrip("/")
    return url in _answers or _is_silent(url), _named(_answers.get(url, ()), model)


def _cards(url: str, key: str | None) -> Sequence[ModelCard]:
    with _locks[url]:
        if url not in _answers and not _is_silent(url):
            try:
                _answers[url] = _ask(url, key)
            except (URLError, OSError):
                _silent_until[url] = time.monotonic() + _ASK_AGAIN_SECONDS
    return _answers.get(url, ())


def _is_silent(url: str) -> bool:
    return _silent_until.get(url, 0.0) > time.monotonic()


def _ask(url: str, key: str | None) -> tuple[ModelCard, ...]:
    """An answer that is no list of models says nothing."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urlopen(Request(f"{url}/models", headers=headers), timeout=_TIMEOUT_SECONDS) as answer:
            return _ModelList.model_validate_json(answer.read(_MAX_BYTES)).data
    except (HTTPError, ValidationError):
        return ()


def _named(cards: Sequence[ModelCard], model: str) -> ModelCard | None:
    """The card of a model; a server with one model has no other."""
    named = (card for card in cards if card.id == model)
    return next(named, cards[0] if len(cards) == 1 else None)
