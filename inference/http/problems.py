"""The one of pydantic's problems that says best what is wrong with a request, and where."""

from collections.abc import Iterator, Sequence
from typing import Any

Location = tuple[int | str, ...]


def clearest_problem(problems: Sequence[Any], content: object) -> dict[str, Any]:
    """The deepest problem of a request, with its place in the request's own words as `loc`.

    Where a field may have several forms, pydantic has a problem for each: the deepest belongs to
    the form that fits best; problems of one place are joined.

    Args:
        problems: as `ValidationError.errors()` has them; at least one.
        content: the parsed request.
    """
    places = [tuple(_place(problem["loc"], problem["type"], content)) for problem in problems]
    deepest = max(places, key=len)
    found = [problem for problem, place in zip(problems, places, strict=True) if place == deepest]
    message = ", or ".join(dict.fromkeys(problem["msg"] for problem in found))
    return dict(found[0]) | {"loc": deepest, "msg": message}


def _place(location: Location, kind: str, content: Any) -> Iterator[int | str]:
    """The parts of a location that are in the request; others name pydantic's own alternatives."""
    for number, part in enumerate(location):
        if isinstance(content, dict) and part in content:
            content = content[part]
            yield part
        elif isinstance(content, list) and isinstance(part, int):
            content = content[part] if part < len(content) else None
            yield part
        elif kind == "missing" and number == len(location) - 1:
            yield part
