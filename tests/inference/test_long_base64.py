"""Long base64 is cut out of bodies, however they arrive, and nothing of it is lost."""

import base64
import random

import orjson
import pytest

from inference.http.long_base64 import Base64Cutter, decode_base64, is_cut

IMAGES = [random.Random(n).randbytes(size) for n, size in enumerate((0, 10, 150_000, 400_001))]
URIS = ["data:image/png;base64," + base64.b64encode(data).decode() for data in IMAGES]
CONTENT = {"input": ["a cat", *URIS, 'a "dog" \\ ünd', "x" * 60_000], "more": URIS[2:]}


def shortened(body, size):
    cutter = Base64Cutter()
    parts = (body[start : start + size] for start in range(0, len(body), size))
    return b"".join(piece for part in parts for piece in cutter.shorten(part))


@pytest.mark.parametrize("size", [777, 65_536, 262_144, 10**9])
def test_what_is_cut_out_is_decoded(size):
    body = orjson.dumps(CONTENT)
    short = shortened(body, size)
    content = orjson.loads(short)
    if size < 200_000:
        assert len(short) < 600_000 < len(body)
    assert content["input"][0] == "a cat" and content["input"][5:] == CONTENT["input"][5:]
    assert not any(map(is_cut, ["a cat", *content["input"][5:]]))
    for uris in (content["input"][1:5], content["more"]):
        decoded = [decode_base64(uri.partition(",")[2]) for uri in uris]
        assert decoded == IMAGES[-len(uris) :]


@pytest.mark.parametrize(
    "end", ["A", "=AAA", "A===", "AA==AAAA", "====" + "0" * 32, "AA==" + "A" * 10**6, "ä", "!"]
)
def test_what_is_no_base64_is_an_error(end):
    text = orjson.loads(shortened(orjson.dumps("A" * 2_000_000 + end), 65_536))
    assert is_cut(text)
    with pytest.raises(ValueError):
        decode_base64(text)


def test_other_texts_are_as_they_were_sent():
    for text in ("x " * 500_000, "\\u00e4" * 20_000, '"' * 100_000, "1" * 50_000):
        body = orjson.dumps(text)
        assert shortened(body, 65_536) == body
