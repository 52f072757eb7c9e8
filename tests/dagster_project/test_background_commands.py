"""`interleave ui` and `serve`, started in the background by a script, end on SIGTERM."""

import os
import signal
import subprocess
from contextlib import suppress
from urllib.request import urlopen

import pytest

from tests.helpers.automation import wait_until
from tests.helpers.command import INTERLEAVE
from tests.helpers.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.long]

# A shell without job control starts such a command with SIGINT ignored.
SCRIPT = '"$@" & trap "kill $!" TERM; wait $!; wait $!'


def answers(url: str) -> bool:
    with suppress(OSError), urlopen(url, timeout=5):
        return True
    return False


def has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("command", "path"), [("serve", "/"), ("ui", "/server_info")])
def test_sigterm_ends_it_and_its_children(tmp_path, command, path):
    port = free_port()
    words = [*INTERLEAVE, command, "--home", str(tmp_path / "home"), "--port", str(port)]
    script = subprocess.Popen(["sh", "-c", SCRIPT, "sh", *words], start_new_session=True)
    try:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}{path}"))
        script.send_signal(signal.SIGTERM)
        assert script.wait(300) == 0
        wait_until(lambda: not has_processes(script.pid), 300)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
