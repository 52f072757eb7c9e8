import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from schemas import StorageError
from warehouse.object_journal import Lease

HOLDER = """
import sys, time
from warehouse import Home
from warehouse.object_journal import Lease

Lease(Home(sys.argv[1]).storage, "lease.json", float(sys.argv[2])).acquire()
print("acquired", flush=True)
time.sleep(600)
"""


def lease(home, seconds=60.0):
    return Lease(home.storage, "lease.json", seconds)


@pytest.fixture
def holder(s3_home):
    """Starts a process that holds the lease for some seconds at a time."""
    processes = []

    def start(seconds):
        command = [sys.executable, "-c", HOLDER, s3_home.root, str(seconds)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "acquired\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_a_released_lease_is_free_at_once(s3_home):
    first, second = lease(s3_home), lease(s3_home)
    assert first.acquire() == 1
    first.release()
    assert second.acquire() == 2
    second.check()
    with pytest.raises(StorageError, match="may belong to another worker"):
        first.check()


def test_of_many_at_once_one_acquires_it(s3_home):
    barrier = threading.Barrier(8)

    def acquire(_):
        mine = lease(s3_home, 2.0)
        barrier.wait()
        try:
            return mine.acquire()
        except StorageError:
            return None

    with ThreadPoolExecutor(8) as pool:
        epochs = list(pool.map(acquire, range(8)))
    assert sorted(epochs, key=str) == [1, *[None] * 7]


def test_a_living_owner_renews_it_and_a_dead_one_loses_it(s3_home, holder):
    process = holder(2.0)
    time.sleep(3.5)
    with pytest.raises(StorageError, match=r"belongs to another worker \(.*process") as error:
        lease(s3_home).acquire()
    assert "\n" not in str(error.value)
    os.kill(process.pid, signal.SIGKILL)
    assert lease(s3_home).acquire() == 2


def test_an_owner_that_was_stopped_for_too_long_fails_its_check(s3_home, monkeypatch):
    sleeper, other = lease(s3_home, 0.6), lease(s3_home)
    # Like the threads of a stopped process.
    monkeypatch.setattr(Lease, "_renew", lambda self: None)
    sleeper.acquire()
    assert other.acquire() == 2
    with pytest.raises(StorageError, match="may belong to another worker now: run again"):
        sleeper.check()
    sleeper.release()  # must not take it from its new owner
    with pytest.raises(StorageError, match="belongs to another worker"):
        monkeypatch.undo()
        third = lease(s3_home, 0.6)
        _renew_soon(other)
        third.acquire()


def _renew_soon(held):
    """As its thread would do, which does not run in this test."""
    threading.Timer(0.5, lambda: held._write(2, held._version, 60.0)).start()


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_clock_that_is_off_neither_loses_nor_prolongs_a_lease(s3_home, monkeypatch, hours):
    owner = lease(s3_home, 1.5)
    real = time.time
    with monkeypatch.context() as shifted:
        shifted.setattr(time, "time", lambda: real() + hours * 3600)
        owner.acquire()
        threading.Timer(0.5, lambda: owner._write(1, owner._version, 1.5)).start()
    with pytest.raises(StorageError, match="belongs to another worker"):
        lease(s3_home).acquire()
    owner._released.set()  # its process dies
    assert lease(s3_home).acquire() == 2
