"""Runs the calls of a client one after the other and prints how each one ended, as JSON.

A call that returns a true value works. Where the service refuses it, the outcome is the field that
the error names, or `not offered` where there is no such endpoint; anything else is a failure.
"""

import json
import re
import sys
import traceback
from collections.abc import Callable

from pydantic import BaseModel

URL = sys.argv[1]
QUESTION = "A red house beside a tree"
_REFUSED = re.compile(r"""(?:- |['"])([a-z_.0-9]+): (?:(?!: ).)*? not supported here""")
_NOT_OFFERED = re.compile(r"(Not Found|Method Not Allowed)")

outcomes: dict[str, str] = {}


class House(BaseModel):
    """A house: the form of structured answers."""

    colour: str


def call(name: str) -> Callable[[Callable[[], object]], None]:
    """Decorator: run a call now and note its outcome under a name."""

    def run(function: Callable[[], object]) -> None:
        try:
            outcomes[name] = "works" if function() else "failed: empty"
        except Exception as error:
            outcomes[name] = _outcome(error)

    return run


def report() -> None:
    print(json.dumps(outcomes))


def _outcome(error: BaseException | None) -> str:
    """The field that a refusal names; clients wrap the service's errors in their own."""
    text = "".join(traceback.format_exception(error))
    if found := _REFUSED.search(text):
        return f"refused: {found[1]}"
    return "not offered" if _NOT_OFFERED.search(text) else f"failed: {error!r}"[:300]
