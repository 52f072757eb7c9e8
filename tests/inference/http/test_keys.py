"""Who may call a server of ours, and from where."""

import pytest

from inference.http.keys import Keys, keys_for
from inference.http.sockets import on_loopback
from inference.roles import BackendError


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_is_known(host, alone):
    assert on_loopback(host) == alone


def test_callers_are_known_by_their_keys():
    keys = Keys(["open sesame", "sésame"])
    mine, yours = keys.owner(b"Bearer open sesame"), keys.owner("Bearer sésame".encode())
    assert mine and yours and mine != yours and "sesame" not in mine
    assert keys.owner(b"Bearer open sesame") == mine
    for wrong in (b"", b"Bearer", b"Bearer ", b"open sesame", b"bearer open sesame"):
        assert keys.owner(wrong) is None
    assert Keys().owner(b"") == "" and not Keys().required


def test_keys_are_needed_beyond_loopback(monkeypatch):
    monkeypatch.setenv("THE_KEYS", " , ")
    assert not keys_for("127.0.0.1", "THE_KEYS").required
    with pytest.raises(BackendError, match=r"0\.0\.0\.0 can be reached.*set THE_KEYS"):
        keys_for("0.0.0.0", "THE_KEYS")
    monkeypatch.setenv("THE_KEYS", "one, two,")
    keys = keys_for("0.0.0.0", "THE_KEYS")
    assert keys.owner(b"Bearer one") and keys.owner(b"Bearer two") and not keys.owner(b"Bearer ")
