"""Ten thousand streams at once: some are served, the others rejected, and the service survives."""

import asyncio
import resource
from collections import Counter
from contextlib import contextmanager

import httpx
import psutil
import pytest

from assets.core.profile import FOLDER
from tests.inference.service.running_service import HOUSE, SNOWMAN, raw_request, serving, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.long]

STREAMS, CONNECTING = 10_000, 500
MAX_MB = 1500


@contextmanager
def raised_file_limit():
    """Raise the limit of open files; skip the test where the system does not allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < STREAMS + CONNECTING:
        pytest.skip(f"this system allows a process {hard} open files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class StreamingClients:
    """Clients that request a stream and keep the connection, whatever the answer is."""

    def __init__(self, port: int) -> None:
        self._port, self._connecting = port, asyncio.Semaphore(CONNECTING)
        self._writers: list[asyncio.StreamWriter] = []
        self.statuses: Counter[str] = Counter()

    async def __aenter__(self) -> "StreamingClients":
        await asyncio.gather(*(self._one() for _ in range(STREAMS)))
        return self

    async def __aexit__(self, *error: object) -> None:
        for writer in self._writers:
            writer.close()

    async def _one(self) -> None:
        async with self._connecting:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(raw_request("/v1/responses", {"input": SNOWMAN, "stream": True}))
        self._writers.append(writer)
        first = await asyncio.wait_for(reader.readline(), 300)
        self.statuses[first.decode().split(" ")[1]] += 1


@pytest.fixture
def quiet_profile(tmp_path):
    """The sketch profile, logging errors only."""
    path = tmp_path / "quiet.yaml"
    sketch = (FOLDER / "sketch.yaml").read_text()
    path.write_text(sketch + "\nservice: {logs: {level: error}}\n")
    return str(path)


def is_idle(address) -> bool:
    metrics = httpx.get(f"{address}metrics", timeout=60).text
    return all(f"interleave_service_{name} 0.0" in metrics for name in ("waiting", "running"))


async def test_ten_thousand_streams(home, quiet_profile):
    with raised_file_limit(), serving(home.root, "--profile", quiet_profile) as (process, client):
        address = client.base_url.copy_with(path="/")
        async with (
            StreamingClients(address.port) as clients,
            httpx.AsyncClient(base_url=str(address), timeout=60) as others,
        ):
            assert (await others.get("/health")).status_code == 200
            assert set(clients.statuses) == {"200", "429"}
            assert clients.statuses["200"] >= 16
            assert psutil.Process(process.pid).memory_info().rss < MAX_MB * 1e6
        # Requests of closed streams are cancelled when the server notices.
        await asyncio.to_thread(wait_until, lambda: is_idle(address), 300)
        response = await asyncio.to_thread(client.responses.create, input=HOUSE)
        assert response.status == "completed"
