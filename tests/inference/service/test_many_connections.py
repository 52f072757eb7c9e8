"""Ten thousand streams at once: most are refused politely, the others and everybody else served."""

import asyncio
import json
import resource
from collections import Counter
from contextlib import contextmanager

import httpx
import psutil
import pytest

from assets.core.profile import FOLDER
from tests.inference.service.running_service import HOUSE, SNOWMAN
from tests.inference.service.serve_command import serving

pytestmark = pytest.mark.slow

STREAMS, SPARE = 10_000, 500
MOST_MB = 1500


@contextmanager
def many_files():
    """Room for so many connections; a skipped test where the system allows none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < STREAMS + SPARE:
        pytest.skip(f"this system lets a process have {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Crowd:
    """Clients that ask for a stream and keep the connection, whatever the answer is."""

    def __init__(self, port: int) -> None:
        self._port, self._connecting = port, asyncio.Semaphore(SPARE)
        self._writers: list[asyncio.StreamWriter] = []
        self.statuses: Counter[str] = Counter()

    async def __aenter__(self) -> "Crowd":
        await asyncio.gather(*(self._one() for _ in range(STREAMS)))
        return self

    async def __aexit__(self, *error: object) -> None:
        for writer in self._writers:
            writer.close()

    async def _one(self) -> None:
        body = json.dumps({"input": SNOWMAN, "stream": True}).encode()
        head = (
            f"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with self._connecting:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(head.encode() + body)
        self._writers.append(writer)
        first = await asyncio.wait_for(reader.readline(), 300)
        self.statuses[first.decode().split(" ")[1]] += 1


@pytest.fixture
def quiet(tmp_path):
    """The sketch profile with few words in the log, which nobody reads here."""
    path = tmp_path / "quiet.yaml"
    sketch = (FOLDER / "sketch.yaml").read_text()
    path.write_text(sketch + "\nservice: {logs: {level: error}}\n")
    return str(path)


async def test_ten_thousand_streams(home, quiet):
    with many_files(), serving(home.root, "--profile", quiet) as (process, client):
        address = client.base_url.copy_with(path="/")
        async with (
            Crowd(address.port) as crowd,
            httpx.AsyncClient(base_url=str(address), timeout=60) as others,
        ):
            assert (await others.get("/health")).status_code == 200
            assert set(crowd.statuses) == {"200", "429"}
            assert crowd.statuses["200"] >= 16
            assert psutil.Process(process.pid).memory_info().rss < MOST_MB * 1e6
        answer = await asyncio.to_thread(client.responses.create, input=HOUSE)
        assert answer.status == "completed"
