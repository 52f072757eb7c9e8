"""A small profile, a real Dagster instance to materialize it with, and a lake to start from."""

import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from assets.core.foundry import FoundryResource
from dagster_project.instance import open_instance
from dagster_project.run import run_lineage
from tests.helpers.ports import free_port

BUCKET = "interleave-lake"
TINY_PROFILE = """
    name: tiny
    description: A few prompts, small pictures
    roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}
    pack: sketchbook
    sizes: {demo: 1, two: 2}
    bank: {shard_size: 25}
    sketch: {picture_size: 96}
"""


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(textwrap.dedent(TINY_PROFILE))
    return str(path)


@pytest.fixture
def foundry(tmp_path, profile) -> FoundryResource:
    return FoundryResource(profile=profile, root=str(tmp_path / "lake"))


@pytest.fixture
def instance(foundry, monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with open_instance(foundry.home) as instance:
        yield instance


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """The folder of a lake with one shard and everything made from it; made once a worker."""
    folder = tmp_path_factory.mktemp("sample")
    path = folder / "tiny.yaml"
    path.write_text(textwrap.dedent(TINY_PROFILE))
    foundry = FoundryResource(profile=str(path), root=str(folder / "lake"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DAGSTER_HOME", raising=False)
        with open_instance(foundry.home) as instance:
            run_lineage(foundry, instance, shards=1)
    return folder / "lake"


@pytest.fixture
def sampled(sample, foundry):
    """`foundry`, whose lake is a copy of the sample; ask for it before `instance`."""
    copy_lake(sample, Path(foundry.root))
    return foundry


def copy_lake(source: Path, target: Path) -> None:
    """Images, which never change, are linked; all else is copied."""

    def copy(file, copied):
        return os.link(file, copied) if file.endswith(".png") else shutil.copy2(file, copied)

    shutil.copytree(source, target, copy_function=copy)


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
