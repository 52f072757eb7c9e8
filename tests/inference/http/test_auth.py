"""API keys: which callers a server accepts, and from where."""

import pytest

from inference.http.auth import Keys, is_loopback, load_keys
from inference.roles import BackendError


def test_is_loopback():
    assert all(map(is_loopback, ("127.0.0.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::")))


def test_owner_is_derived_from_the_key():
    keys = Keys(["open sesame", "sésame"])
    mine, yours = keys.owner(b"Bearer open sesame"), keys.owner("Bearer sésame".encode())
    assert mine and yours and mine != yours and "sesame" not in mine
    for scheme in (b"Bearer", b"bearer", b"BEARER"):
        assert keys.owner(scheme + b" open sesame") == mine
    for wrong in (b"", b"Bearer", b"Bearer ", b"open sesame", b"Basic open sesame"):
        assert keys.owner(wrong) is None
    assert Keys().owner(b"") == "" and not Keys().required


def test_keys_are_required_beyond_loopback(monkeypatch):
    monkeypatch.setenv("THE_KEYS", " , ")
    assert not load_keys("127.0.0.1", "THE_KEYS").required
    with pytest.raises(
        BackendError, match=r"0\.0\.0\.0 can be reached from other machines: set THE_KEYS"
    ):
        load_keys("0.0.0.0", "THE_KEYS")
    monkeypatch.setenv("THE_KEYS", "one, two,")
    keys = load_keys("0.0.0.0", "THE_KEYS")
    assert keys.owner(b"Bearer one") and keys.owner(b"Bearer two") and not keys.owner(b"Bearer ")
