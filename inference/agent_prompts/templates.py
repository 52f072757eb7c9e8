"""The agents' prompts: jinja files named `<name>.v<version>.jinja`, rendered with strict values.

A template is never edited once data was made with it: a new wording is a new version, and every
training row stores the `name@version` it was made with.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2

from schemas import FoundryError

FOLDER = Path(__file__).parent
IMAGE = "<image>"

_FILE = re.compile(r"(?P<name>[\w-]+)\.v(?P<version>\d+)\.jinja")
# Tags that give our texts their structure; inside free text they would forge it.
_RESERVED = r"<(/?(?:image|video|audio|think|answer|plan|critic|info|gthink|img_token))>"
_RESERVED_TAG = re.compile(_RESERVED, re.IGNORECASE)
# Private-use characters: no prompt contains them, so they mark a slot's place unmistakably.
_SLOT = re.compile("\ue000(.+?)\ue001")


@dataclass(frozen=True)
class RenderedPrompt:
    """Text for the model, and the `name@version` of the template that made it."""

    text: str
    version: str


@dataclass(frozen=True)
class Segments:
    """A template cut at its slots: literals at even places, slot names at odd ones."""

    parts: tuple[str, ...]
    version: str


def render(name: str, **values: object) -> RenderedPrompt:
    """Fill a template: the newest version of `name`, or exactly `name@version`.

    Raises:
        FoundryError: there is no such template, or a value it needs is missing.
    """
    path, version = _find(name)
    try:
        return RenderedPrompt(_environment().get_template(path).render(**values).strip(), version)
    except jinja2.UndefinedError as error:
        raise FoundryError(
            f"agent prompt {version}: {error.message}; pass it to render()"
        ) from error


def segments(name: str, *slots: str, **values: object) -> Segments:
    """The template around `slots`, so that a million rows are filled by concatenation."""
    marks = {slot: f"\ue000{slot}\ue001" for slot in slots}
    rendered = render(name, **marks, **values)
    return Segments(tuple(_SLOT.split(rendered.text)), rendered.version)


def escape_tags(text: str) -> str:
    """`text` with reserved tags in square brackets: `<image>` becomes `[image]`."""
    return _RESERVED_TAG.sub(r"[\1]", text) if "<" in text else text


def escape_tags_sql(expression: str) -> str:
    """`escape_tags` as a DuckDB expression."""
    return rf"regexp_replace({expression}, '{_RESERVED}', '[\1]', 'gi')"


def place_images(text: str, count: int) -> str:
    """`text` with exactly `count` image placeholders.

    Its own come first in order; placeholders it lacks are put in front, surplus ones become words.
    """
    pieces = [escape_tags(piece) for piece in re.split(IMAGE, text, flags=re.IGNORECASE)]
    own = min(count, len(pieces) - 1)
    head = IMAGE.join(pieces[: own + 1])
    surplus = "".join(f"[image]{piece}" for piece in pieces[own + 1 :])
    return IMAGE * (count - own) + head + surplus


def version_of(name: str) -> str:
    """`name@version` of an agent prompt, by name (newest) or name@version."""
    return _find(name)[1]


@cache
def _versions() -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for path in FOLDER.glob("*.jinja"):
        if match := _FILE.fullmatch(path.name):
            found.setdefault(match["name"], {})[int(match["version"])] = path.name
    return found


def _find(name: str) -> tuple[str, str]:
    base, _, wanted = name.partition("@")
    versions = _versions().get(base, {})
    version = int(wanted) if wanted.isdecimal() else max(versions, default=0)
    if version not in versions or wanted not in ("", str(version)):
        known = ", ".join(sorted(f"{n}@{v}" for n, vs in _versions().items() for v in vs))
        raise FoundryError(f"no agent prompt '{name}'; there are: {known}")
    return versions[version], f"{base}@{version}"


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        auto_reload=False,
    )
