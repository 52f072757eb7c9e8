"""Lakes to test on (a folder, memory, a real local S3 server) and rows to put there."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from schemas.trajectories import AttemptRow
from warehouse import EncodedImage, Home


def attempt(number: int, **changes: object) -> AttemptRow:
    row = {
        "trajectory_id": f"t{number // 4}",
        "prompt_id": f"p{number // 4}",
        "shard": "sketchbook-0000",
        "step_number": 1,
        "iteration": number % 4,
        "prompt": f"Draw a red house, try {number}",
        "source_image": None if number % 4 == 0 else "a" * 64,
        "image": f"{number:064x}",
        "seed": number,
        "accepted": number % 4 == 3,
        "chosen": number % 4 == 3,
        "refined_prompt": "",
        "reasoning": "The house is where it belongs.",
        "generator": "sketch",
        "critic": "sketch",
        "generator_seconds": 0.25,
        "critic_seconds": 0.5,
    }
    return AttemptRow.model_validate(row | changes)


@pytest.fixture
def attempts() -> Callable[..., list[AttemptRow]]:
    def rows(count: int, **changes: object) -> list[AttemptRow]:
        return [attempt(number, **changes) for number in range(count)]

    return rows


@pytest.fixture
def image() -> EncodedImage:
    return EncodedImage.of(Image.linear_gradient("L").resize((48, 48)))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """A real S3-compatible server (moto) on a free local port."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_home(s3_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Home:
    boto3, s3fs = pytest.importorskip("boto3"), pytest.importorskip("s3fs")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("INTERLEAVE_LOCAL", str(tmp_path / "local"))
    s3fs.S3FileSystem.clear_instance_cache()
    boto3.client("s3").create_bucket(Bucket="stories")
    return Home(f"s3://stories/{tmp_path.name}")


@pytest.fixture
def memory_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Home:
    monkeypatch.setenv("INTERLEAVE_LOCAL", str(tmp_path / "local"))
    return Home(f"memory://{tmp_path.name}")


# For what memory shows as well as an S3 server, which takes ten times longer.
WITHOUT_S3 = pytest.mark.parametrize("any_home", ["folder", "memory"], indirect=True)


@pytest.fixture(params=["folder", "memory", "s3"])
def any_home(request: pytest.FixtureRequest) -> Home:
    fixtures = {"folder": "home", "memory": "memory_home", "s3": "s3_home"}
    return request.getfixturevalue(fixtures[request.param])


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small tmpfs with the given options; skips where that is not allowed."""
    folders: list[Path] = []

    def mount(options: str) -> Path:
        folder = tmp_path / f"mount{len(folders)}"
        folder.mkdir(exist_ok=True)
        call = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(call, capture_output=True, check=False).returncode:
            pytest.skip("needs the right to mount a tmpfs")
        folders.append(folder)
        return folder

    yield mount
    for folder in folders:
        subprocess.run(["umount", "-l", str(folder)], check=True)
