"""What judges are asked, and what their answers say: JSON objects, and lines with a label."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import yaml
from pydantic import JsonValue


def read_prompts(benchmark: str) -> Mapping[str, str]:
    """Texts by name, from the YAML file of a benchmark beside this module.

    Another wording is another question, to which no stored answer belongs.
    """
    path = Path(__file__).with_name(f"{benchmark}.yaml")
    return cast(Mapping[str, str], yaml.safe_load(path.read_text("utf-8")))


def json_objects(text: str) -> list[object]:
    """The outermost JSON objects of a text, in order."""
    decoder, found, start = json.JSONDecoder(), [], text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
            found.append(value)
        except ValueError:
            end = start + 1
        start = text.find("{", end)
    return found


def only_object(text: str, read: Callable[[object], JsonValue]) -> JsonValue:
    """What `read` makes of the JSON objects of a text; None unless it can read exactly one."""
    values = [value for each in json_objects(text) if (value := read(each)) is not None]
    return values[0] if len(values) == 1 else None


def labelled(text: str, label: str) -> str:
    """What follows `label:` in a line, upper case, without spaces and Markdown's marks.

    Empty: there is no such line, or several differ. `label` is a regular expression of any case.
    """
    line = rf"^[ \t*_#>-]*{label}[\s*_]*:[\s*_]*(.*?)[\s*_.]*$"
    lines = re.findall(line, text, re.IGNORECASE | re.MULTILINE)
    found = {re.sub(r"\s", "", each).upper() for each in lines}
    return found.pop() if len(found) == 1 else ""


def grade(text: str, label: str, scale: str) -> int | None:
    """The integer of a labelled line; None: there is none of the scale (`[1-5]`)."""
    value = labelled(text, label)
    return int(value) if re.fullmatch(scale, value) else None
