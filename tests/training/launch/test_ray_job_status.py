"""What the launcher makes of a Ray job server that does not always answer."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from inference.servers.ray_jobs import job_client, submit_job
from schemas import FoundryError
from tests.helpers.ports import free_port
from tests.training.launch.launch_helpers import THREE_STEPS, launch, toy_job
from training.launch import ray_job
from training.launch.jobs import LauncherSettings

RUNNING = {"type": "SUBMISSION", "status": "RUNNING", "entrypoint": "x"}
ENDED = RUNNING | {"status": "FAILED", "driver_exit_code": 7}


class JobServer(ThreadingHTTPServer):
    """Answers the real client from a list; a text or None: status 500."""

    answers: list[dict | str | None]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: JobServer

    def do_GET(self) -> None:
        version = {"ray_version": "2.60.0", "version": "4", "ray_commit": "x"}
        self._answer(version if self.path == "/api/version" else self.server.answers.pop(0))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(self.server.answers.pop(0))

    def _answer(self, answer: dict | str | None) -> None:
        self.send_response(200 if isinstance(answer, dict) else 500)
        self.end_headers()
        self.wfile.write((answer if isinstance(answer, str) else json.dumps(answer)).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[JobServer]:
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_job, "_POLL_SECONDS", 0)
    with JobServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def status_of(server, submit=lambda: None):
    return ray_job.RayJobStatus(job_client(server.address), "job", submit)


def test_a_cluster_that_still_starts_is_asked_again(server):
    starting = "No available agent to submit job, please try again later."
    server.answers = [starting, {"job_id": "1", "submission_id": "1"}, "disk full"]
    submit_job(job_client(server.address), entrypoint="true")
    with pytest.raises(RuntimeError, match="disk full"):
        submit_job(job_client(server.address), entrypoint="true")


def test_a_job_that_waited_in_vain_for_its_gpus_waits_again(server):
    error = {"error_type": "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"}
    server.answers, submitted = [RUNNING | error | {"status": "FAILED"}, RUNNING, ENDED], []
    status = status_of(server, lambda: submitted.append(True))
    assert [status.exit_code() for _ in range(3)] == [None, None, 7]
    assert submitted == [True]


def test_a_failed_poll_and_a_server_that_is_gone_for_a_while_do_not_end_a_training(server):
    server.answers = [RUNNING, None, None, RUNNING, ENDED, RUNNING]
    status = status_of(server)
    assert [status.exit_code() for _ in range(5)] == [None, None, None, None, 7]
    status = status_of(server)
    assert status.exit_code() is None
    server.shutdown()
    server.server_close()
    assert status.exit_code() is None


def test_a_server_that_stays_silent_does(server, monkeypatch):
    server.answers = [RUNNING, None, None]
    status = status_of(server)
    assert (status.exit_code(), status.exit_code()) == (None, None)
    monkeypatch.setattr(ray_job, "_SILENT_SECONDS", 0)
    with pytest.raises(
        FoundryError, match=r"has not answered about job job .* run again to resume"
    ):
        status.exit_code()


def test_polls_are_spaced(server, monkeypatch):
    monkeypatch.setattr(ray_job, "_POLL_SECONDS", 60)
    server.answers = [RUNNING]
    status = status_of(server)
    assert (status.exit_code(), status.exit_code()) == (None, None)


def test_no_job_server_is_one_line(tmp_path):
    pytest.importorskip("ray")
    settings = LauncherSettings(kind="ray", address=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(FoundryError, match="no Ray job server at"):
        launch(toy_job(tmp_path, THREE_STEPS), settings)
