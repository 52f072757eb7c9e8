"""verl's options in the grammar of Hydra's command line: `key=value`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_KEY = re.compile(r"\+{0,2}[A-Za-z_][\w/@-]*(\.[\w@-]+)*")
_DICT_KEY = re.compile(r"[\w.-]+")
# YAML 1.1 reads 1e-6 as text; a number needs a point there.
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
_BEFORE_QUOTE = re.compile(r"(\\+)(?='|\Z)")


def override_list(pairs: Mapping[str, Any]) -> list[str]:
    """One `key=value` for each option."""
    return [f"{key}={hydra_value(value)}" for key, value in pairs.items()]


def plain_name(key: str) -> str:
    """An option's name without the `+` that adds it to a configuration."""
    return key.lstrip("+")


def is_option_name(key: str) -> bool:
    """Whether Hydra reads this as the name of an option, set or added."""
    return _KEY.fullmatch(key) is not None


def overlap(one: str, other: str) -> bool:
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
