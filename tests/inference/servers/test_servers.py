"""Servers that processes of a home start and share, with a tiny HTTP server as the model."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from inference.backends.providers import endpoints
from inference.roles import BackendError
from inference.servers.gpus import claimed_gpus
from inference.servers.instance import home_servers
from tests.inference.servers import toy_model
from tests.inference.servers.conftest import only_server, processes_of, wait_until
from tests.inference.servers.toy_model import draw, generator

pytestmark = pytest.mark.slow


@contextmanager
def user_of(home, **changes):
    """A process that calls the server, and prints who answered."""
    command = [sys.executable, toy_model.__file__, "use", home.root, json.dumps(changes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as user:
        try:
            yield user
        finally:
            user.kill()


def test_one_server_answers_all_processes_of_a_home(home):
    async def calls():
        toy = generator(home.root)
        images = await asyncio.gather(*(toy.generate(f"pixel {n}", (), n) for n in range(8)))
        return {image.image.width - 1 for image in images}

    servers = asyncio.run(calls())
    with user_of(home) as user:
        assert servers == {int(user.stdout.readline())}
    folder = only_server(home)
    state, key_file = folder.state(), folder.path.parent / "key"
    assert state.state == "ready" and state.url.startswith("http://127.0.0.1:")
    key = key_file.read_text()
    assert key_file.stat().st_mode & 0o077 == 0
    files = [path for path in home.local.rglob("*") if path.is_file() and path != key_file]
    assert files and not any(key.encode() in path.read_bytes() for path in files)


def test_a_server_that_cannot_start_says_why(home):
    command = [sys.executable, "-c", "raise ValueError('no weights here')"]
    with pytest.raises(BackendError, match=r"server toy .*ValueError: no weights here.*log: "):
        draw(home.root, command=command)
    assert only_server(home).state().state == "failed"


def test_a_call_that_meets_a_server_as_it_ends_is_asked_again(home):
    """Of one that has died nobody knows for a moment, and the call has its lease."""

    async def calls():
        toy = generator(home.root)
        first = await toy.generate("a pixel", (), 1)
        for process in processes_of(only_server(home)):
            process.kill()
        return first, await toy.generate("another", (), 2)

    first, second = asyncio.run(calls())
    assert first.image.width != second.image.width


@pytest.mark.parametrize(
    "health", ["/health", pytest.param("/never-ready", marks=pytest.mark.long)]
)
def test_nothing_is_left_of_a_server_whose_users_were_killed(home, health):
    with user_of(home, health=health) as user:
        if health == "/health":
            user.stdout.readline()
        wait_until(lambda: any(map(processes_of, home_servers(home))))
        user.kill()
    folder = only_server(home)
    wait_until(lambda: not folder.is_supervised)
    assert not processes_of(folder)


def test_a_killed_supervisor_takes_the_server_along(home):
    draw(home.root)
    folder = only_server(home)
    assert processes_of(folder)
    os.kill(folder.state().pid, signal.SIGKILL)
    wait_until(lambda: not processes_of(folder))
    assert folder.state() is None


@pytest.mark.long
def test_it_stops_when_it_is_idle(home):
    draw(home.root, idle_seconds=0.5)
    folder = only_server(home)
    wait_until(lambda: not folder.is_supervised)
    assert not processes_of(folder)


@pytest.mark.long
def test_a_training_gets_the_gpus_between_two_calls(home, monkeypatch):
    """The lease outlasts a call for a while, in which the training waits."""
    monkeypatch.setattr("inference.servers.hosts.SUPERVISOR", toy_model.QUICK_SUPERVISOR)
    monkeypatch.setattr(endpoints, "_LINGER_SECONDS", 0.5)
    claimed, waited = threading.Event(), []

    def train():
        with claimed_gpus([0], 1.0, "the training", waited.append):
            claimed.set()

    async def calls():
        toy = generator(home.root, gpus=[0])
        await toy.generate("a pixel", (), 1)
        training = threading.Thread(target=train)
        training.start()
        await asyncio.sleep(0.3)
        assert not claimed.is_set()
        await asyncio.to_thread(training.join, 20)
        assert claimed.is_set()
        await toy.generate("another", (), 2)  # started again

    asyncio.run(calls())
    assert any("server toy of" in line for line in waited)


def test_servers_share_a_gpu_by_its_memory(home):
    with claimed_gpus([0], 0.7, "one"), claimed_gpus([0, 1], 0.3, "other"):
        seen = []

        def give_up(line):
            seen.append(line)
            raise TimeoutError

        with pytest.raises(TimeoutError), claimed_gpus([0], 0.05, "third", give_up):
            pass
    assert "GPU 0 is used by one, process" in seen[0] and "other" in seen[0]
    with claimed_gpus([0, 1], 1.0, "all"):
        pass
