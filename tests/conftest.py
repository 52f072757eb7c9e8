"""What all tests share: a home, a bucket, vLLM, one torch thread, the order of files."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from dagster_project.cli.options import enable_interrupts
from schemas import FoundryError
from tests.helpers.guides import AGENTS, run_script, scripts
from tests.helpers.ports import free_port
from warehouse import Home

BUCKET = "interleave-lake"

# As many workers as cores: a torch thread each, in this process and in those that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray's workers have a niceness of 15, with which they would starve beside other tests.
os.environ.setdefault("RAY_worker_niceness", "0")
# Started in the background by a script: with SIGINT, Dagster would have children ignore SIGTERM.
enable_interrupts()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no worker is left with one at the end: the guides
    before all others, the longest file, which also trains what other files copy; those last of the
    slow ones, so that no worker waits for it."""
    marks = {"slow", "long"}
    slow = {item.path for item in items if marks & {m.name for m in item.iter_markers()}}
    copying = {item.path for item in items if "trained_folder" in getattr(item, "fixturenames", ())}

    def rank(item: pytest.Item) -> int:
        if item.path.name == "test_guides.py":
            return 0
        return 1 + (item.path in copying) if item.path in slow else 3

    items.sort(key=rank)


@pytest.fixture(autouse=True, scope="module")
def dagster_home() -> Iterator[None]:
    """Dagster's home, which is named where an instance is opened, is forgotten after a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", "unset")
        patch.delenv("DAGSTER_HOME")
        yield


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """Interpreter of vLLM for CPU; made on first use, and a skipped test where it cannot be."""
    from inference.environments import ensure_environment

    try:
        return ensure_environment("agents", "cpu")
    except FoundryError as error:
        pytest.skip(f"vLLM for CPU cannot be installed here: {error}")


def made_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """A folder that the worker which needs it first makes, for all workers: to be copied."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder, finished = shared / name, shared / f"{name}.finished"
    with FileLock(f"{folder}.lock"):
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            folder.mkdir()
            make(folder)
            finished.touch()
    return folder


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory) -> Path:
    """A folder in which the guide to agents has run its first block, which trains."""
    return made_once(
        tmp_path_factory, "trained", lambda folder: run_script(next(scripts(AGENTS)), folder)
    )


@pytest.fixture
def bucket(monkeypatch):
    """A bucket of an S3 server in a process of its own, as its URL."""
    s3fs = pytest.importorskip("s3fs")
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    s3fs.S3FileSystem.clear_instance_cache()  # another test's server had another port
    try:
        _wait_for(port)
        s3fs.S3FileSystem(skip_instance_cache=True).mkdir(BUCKET)
        yield f"s3://{BUCKET}/stories"
    finally:
        server.kill()
        server.wait()


def _wait_for(port):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the S3 server did not start")


@pytest.fixture(scope="session")
def recorded_home(tmp_path_factory):
    """A home with a small shard that profile `sketch` made: copy it before changing it."""
    from assets.core.foundry import FoundryResource
    from tests.assets.evaluation.sample_lake import write_sample_lake

    root = tmp_path_factory.mktemp("recorded") / "home"
    write_sample_lake(Home(root), 12, FoundryResource(profile="sketch", root=str(root)).roles)
    return root


@pytest.fixture
def recorded_foundry(recorded_home, tmp_path):
    """Profile `sketch` on a copy of it."""
    from assets.core.foundry import FoundryResource

    root = shutil.copytree(recorded_home, tmp_path / "home")
    return FoundryResource(profile="sketch", root=str(root))
