"""A store that answers 30 % of all requests with 503 SlowDown: everything is stored, once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from schemas.trajectories import ATTEMPTS
from tests.helpers.throttling_proxy import Throttle, throttling_proxy
from warehouse import Home


@pytest.fixture
def throttled(s3_server, s3_home, monkeypatch):
    """A home behind the proxy, and the proxy's counts."""
    import s3fs

    throttle = Throttle(0.3)
    with throttling_proxy(s3_server, throttle) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        s3fs.S3FileSystem.clear_instance_cache()
        yield Home(s3_home.root), throttle
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.slow
def test_a_throttled_store_loses_nothing(throttled, s3_home, attempts, image):
    home, throttle = throttled
    written = home.lake.write(ATTEMPTS, attempts(4), "sketchbook-0000")
    sha256 = home.images.put(image)
    with home.journal("plans", "sketchbook-0000") as journal, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: journal.append({"number": number}), range(16)))
    with home.journal("plans", "sketchbook-0000") as journal:
        journal.append({"number": 16})
    assert throttle.throttled > 10 and throttle.answered > throttle.throttled
    for each in (home, s3_home):
        assert each.lake.content_hash(ATTEMPTS, "sketchbook-0000") == written.content_hash
        assert each.images.get(sha256) == image
        records = each.journal("plans", "sketchbook-0000").records()
        assert sorted(record["number"] for record in records) == [*range(17)]
