"""JSON in a judge's answer."""

import json


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
