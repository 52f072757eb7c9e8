from contextlib import suppress
from functools import partial

import psutil
import pytest

from inference.servers import instance
from inference.servers.instance import home_servers
from tests.inference.service import running_service
from warehouse import Home

wait_until = partial(running_service.wait_until, seconds=30)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home whose servers are ended with the test; GPUs are claimed in a folder of its own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    home = Home(tmp_path / "home")
    yield home
    for folder in home_servers(home):
        folder.stop()
    wait_until(lambda: not any(folder.is_supervised for folder in home_servers(home)))
    forget_uses()


def forget_uses():
    """As if this process, which used servers, had ended."""
    while instance._uses:
        instance._uses.popitem()[1].release()


def only_server(home):
    (folder,) = home_servers(home)
    return folder


def processes_of(folder):
    """Everything that runs in a server's folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get("INTERLEAVE_TRAINING_JOB") == str(folder.path):
                found.append(process)
    return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]
