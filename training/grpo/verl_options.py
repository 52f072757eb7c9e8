"""verl's options in the grammar of Hydra's command line, and which of them a profile may set."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import JsonValue

ROLLOUT = "actor_rollout_ref.rollout"
ACTOR = "actor_rollout_ref.actor"
REFERENCE = "actor_rollout_ref.ref"
MODEL = "actor_rollout_ref.model"

_RESERVED = yaml.safe_load(Path(__file__).with_name("options.yaml").read_text("utf-8"))
SETTING_OF: dict[str, str] = _RESERVED["settings"]  # option -> the setting that it is
DERIVED_FROM: dict[str, str] = _RESERVED["derived"]  # option -> the setting that it follows from
_KEY = re.compile(r"\+{0,2}[A-Za-z_][\w/@-]*(\.[\w@-]+)*")
_DICT_KEY = re.compile(r"[\w.-]+")
# YAML 1.1 reads 1e-6 as text; a number needs a point there.
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
_BEFORE_QUOTE = re.compile(r"(\\+)(?='|\Z)")


def check_option(key: str, value: JsonValue) -> None:
    """Raises ValueError for an option that the settings or the driver set, or Hydra cannot read."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no name of an option, such as {ROLLOUT}.enforce_eager")
    for option, setting in (SETTING_OF | DERIVED_FROM).items():
        if _overlap(plain_name(key), option):
            raise ValueError(f"{key} follows from `{setting}`: set that instead, beside `options`")
    if any(_overlap(plain_name(key), option) for option in _RESERVED["driver"]):
        raise ValueError(f"{key}: the driver sets this, its files and rewards depend on it: remove")
    try:
        hydra_value(value)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def override_list(pairs: Mapping[str, Any]) -> list[str]:
    """One `key=value` for each option."""
    return [f"{key}={hydra_value(value)}" for key, value in pairs.items()]


def plain_name(key: str) -> str:
    """An option's name without the `+` that adds it to a configuration."""
    return key.lstrip("+")


def _overlap(one: str, other: str) -> bool:
    """Whether two names are the same option, or one is a section that has the other."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def hydra_value(value: Any) -> str:
    """A value of YAML in Hydra's grammar; text is quoted, since it may have any character.

    Raises:
        ValueError: a key of a mapping has characters that Hydra cannot read there.
    """
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case list() | tuple():
            return f"[{','.join(map(hydra_value, value))}]"
        case dict():
            return f"{{{','.join(f'{_dict_key(k)}:{hydra_value(v)}' for k, v in value.items())}}}"
        case str() if _EXPONENT.fullmatch(value):
            return value
        case str() | Path():
            return _quoted(str(value))
    raise ValueError(f"{value!r} is no value of an option")


def _quoted(text: str) -> str:
    """Only backslashes in front of a quote, also the closing one, are doubled."""
    escaped = _BEFORE_QUOTE.sub(r"\1\1", text).replace("'", "\\'")
    return f"'{escaped}'"


def _dict_key(key: object) -> str:
    if not _DICT_KEY.fullmatch(str(key)):
        raise ValueError(f"key {key!r}: letters, digits, '.', '-' and '_' only")
    return str(key)
