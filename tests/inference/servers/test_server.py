"""A server's life: start, failures, and its end with the process that started it."""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from inference.servers import vllm
from inference.servers.processes import JOB_MARK, find_marked
from inference.servers.server_process import ServerFailedError, newest_line
from tests.helpers.ports import free_port
from tests.inference.servers.conftest import wait_until
from tests.inference.servers.toy_serving import agent_server, serve_toy, toy_command, toy_python
from warehouse.file_lock import exclusive_lock

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setattr(vllm, "vllm_command", toy_command)
    monkeypatch.setattr(vllm, "ensure_environment", toy_python)


@pytest.fixture
def port():
    return free_port()


def folder_of(home, port):
    return home.local / "serving" / str(port)


def remaining(home, port):
    return find_marked(JOB_MARK, str(folder_of(home, port)))


def pids_of(home, port):
    return [int(pid) for pid in (folder_of(home, port) / "pids").read_text().split()]


def have_ended(pids):
    """A zombie that no init removes has ended as well."""
    alive = [psutil.Process(pid).status() for pid in pids if psutil.pid_exists(pid)]
    return all(status == psutil.STATUS_ZOMBIE for status in alive)


def test_a_server_answers_inside_its_context_and_ends_with_it(home, port):
    lines = []
    with serve_toy(home, port, starting=lines.append) as running:
        assert running.url == f"http://127.0.0.1:{port}/v1"
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
            assert answer.status == 200
        pids = pids_of(home, port)
        assert not have_ended(pids)
    assert "Loading weights" in lines
    assert have_ended(pids) and not remaining(home, port)


def test_a_failed_start_and_a_crash_are_one_line_with_the_log(home, port):
    with pytest.raises(ServerFailedError) as raised, serve_toy(home, port, "dies"):
        pass
    message = str(raised.value)
    assert "ValueError: these weights do not fit" in message and "\n" not in message
    assert str(folder_of(home, port) / "driver.log") in message
    assert not remaining(home, port)
    with pytest.raises(ServerFailedError, match=r"ended with a\.b\.LoadError: too short \(log"):
        serve_toy(home, port, "engine dies").__enter__()
    with serve_toy(home, port) as running:
        assert "ValueError" not in running.log.read_text()  # which starts anew
        psutil.Process(pids_of(home, port)[0]).kill()
        with pytest.raises(ServerFailedError, match=r"was killed, most likely.*--max-length"):
            running.wait()


def test_a_port_in_use_is_one_line(home, port):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(ServerFailedError, match=rf"port {port}.*in use.*--port"):
            serve_toy(home, port).__enter__()
    # Of a server that does not listen yet, only the lock is in the way.
    lock = exclusive_lock(folder_of(home, port) / "server.lock", AssertionError())
    with lock, pytest.raises(ServerFailedError, match="in use"):
        serve_toy(home, port).__enter__()


def test_missing_gpus_are_one_line(home, monkeypatch):
    monkeypatch.setattr(vllm, "gpus", lambda: 1)
    settings = agent_server(gpus=2)
    with pytest.raises(ServerFailedError, match=r"1 GPUs here, not 2.*--gpus 0"):
        vllm.serve(vllm.ServableAgent("m", "m"), settings, vllm.Address(), home, str).__enter__()


def test_the_newest_line_has_no_prefix(tmp_path):
    log = tmp_path / "log"
    assert newest_line(log) == ""
    for content, line in (
        ("", ""),
        ("one\ntwo\n", "two"),
        ("(EngineCore pid=3) INFO 11-21 22:15:29 [core.py:1] Warming up\n", "Warming up"),
        ("Loading: 10%\rLoading: 90%\r", "Loading: 90%"),
    ):
        log.write_text(content)
        assert newest_line(log) == line


SERVE_PROGRAM = """
import sys, time
sys.path.insert(0, {here!r})
from tests.inference.servers.toy_serving import agent_server, use_toy, serve_toy
from dagster_project.cli.serving import serve_in_terminal
from inference.servers.vllm import Address, ServableAgent
from warehouse import Home
use_toy()
model = ServableAgent("toy", "toy")
serve_in_terminal(model, agent_server(flags=[{mode!r}]), Address(port={port}), Home({home!r}))
"""


def serve_in_process(home, port, mode=""):
    """`interleave agents serve` in a process of its own, once it serves."""
    program = SERVE_PROGRAM.format(here=str(HERE), port=port, mode=mode, home=str(home.root))
    command = [sys.executable, "-c", program]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = run.stdout.readline()
    assert line == "openai:\n", line + run.stderr.read()
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM]
)
def test_ctrl_c_and_term_stop_it_quietly(home, port, number):
    run = serve_in_process(home, port)
    pids = pids_of(home, port)
    run.send_signal(number)
    _, output = run.communicate(timeout=120)
    assert run.returncode == 0, output
    assert "toy is served at" in output and "no longer served" in output
    assert "Traceback" not in output
    assert have_ended(pids) and not remaining(home, port)


@pytest.mark.slow
def test_a_killed_command_leaves_no_process(home, port, monkeypatch):
    run = serve_in_process(home, port, "stubborn")
    try:
        pids = pids_of(home, port)
        assert len(pids) == 2 and not have_ended(pids)
        run.kill()
        run.communicate()
        # It cannot clean up: its driver notices and does.
        wait_until(lambda: not remaining(home, port), seconds=120)
        assert have_ended(pids)
    finally:
        for process in remaining(home, port):
            process.kill()


@pytest.mark.slow
@pytest.mark.long
def test_an_engine_ends_whose_server_and_driver_were_killed_with_the_command(home, port):
    run = serve_in_process(home, port, "engine")
    pids = pids_of(home, port)
    (driver,) = psutil.Process(run.pid).children()
    killed = [psutil.Process(pids[0]), driver, psutil.Process(run.pid)]
    for process in killed:
        process.suspend()  # none of them sees another one's end
    for process in killed:
        process.kill()
    run.communicate()
    wait_until(lambda: have_ended(pids), seconds=60)
