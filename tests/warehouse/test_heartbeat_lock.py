"""Locks by heartbeats: those of living processes last, those of dead ones expire."""

import time

import pytest

from warehouse import heartbeat_lock
from warehouse.heartbeat_lock import is_free, is_locked, try_lock


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERLEAVE_LEASE_SECONDS", "0.3")
    heartbeat_lock._start_beating.cache_clear()  # a thread at this pace
    return tmp_path / "lock"


def test_it_is_shared_or_exclusive(path):
    assert is_free(path) and not is_locked(path)
    first, second = try_lock(path, shared=True), try_lock(path, shared=True)
    assert first and second and try_lock(path) is None
    assert not is_free(path) and not is_locked(path)
    first.release()
    second.release()
    exclusive = try_lock(path)
    assert is_locked(path) and try_lock(path) is None and try_lock(path, shared=True) is None
    exclusive.release()
    assert is_free(path)


def test_it_lasts_as_long_as_its_process(path):
    lock = try_lock(path)
    time.sleep(0.6)
    assert is_locked(path)
    heartbeat_lock._held.clear()  # as if that process had been killed
    time.sleep(0.6)
    assert is_free(path) and try_lock(path)
    lock.release()
