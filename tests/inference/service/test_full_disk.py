"""A full or read-only disk under the service: clients and operators are told, nothing is lost."""

import os
import subprocess

import pytest

from inference.generation import generation_sink
from schemas import StorageError
from tests.inference.service.running_service import HOUSE, error_of, running_service, wait_until
from warehouse import Home
from warehouse.sql import query


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 12 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)]
    if os.getuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("file systems can be mounted by root only")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(path):
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def test_a_full_disk_is_reported_and_loses_nothing(small_disk, caplog, monkeypatch):
    # The disk has to be full before the first request's rows are written.
    monkeypatch.setattr(generation_sink, "_FLUSH_SECONDS", 6)
    home, filler = Home(small_disk / "home"), small_disk / "filler"
    with running_service(home) as service:
        service.client().responses.create(input=HOUSE)
        fill(filler)
        rejected = service.post("/v1/responses", json={"input": HOUSE})
        assert error_of(rejected, 503)["code"] == "storage_unavailable"
        not_ready = error_of(service.get("/ready"), 503)
        assert not_ready["code"] == "not_ready" and "no space left" in not_ready["message"]
        wait_until(lambda: "rows of requests cannot be written yet" in caplog.text)
        filler.unlink()
        wait_until(lambda: service.get("/ready").status_code == 200)
        service.client().responses.create(input=HOUSE)
    assert query("select status from generations", home).status.tolist() == ["complete"] * 2
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2 and "requests cannot be stored" in errors[0]


def test_a_home_that_cannot_be_written_any_more_is_one_line_in_the_log(home, caplog):
    with running_service(home) as service:
        service.client().responses.create(input=HOUSE)
        journals = home.local / "journals"
        away = journals.rename(journals.with_name("away"))
        journals.touch()
        failed = service.post("/v1/responses", json={"input": HOUSE})
        assert "cannot be written" in error_of(failed, 500)["message"]
        journals.unlink()
        away.rename(journals)
        service.client().responses.create(input=HOUSE)
    (line,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert "cannot be stored" in line and "journals" in line


def test_a_service_does_not_start_on_a_read_only_home(small_disk):
    """The error says which folder cannot be written."""
    home = Home(small_disk / "home")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    reason = f"{home.root}/service cannot be written: the file system is read-only"
    with pytest.raises(StorageError, match=reason), running_service(home):
        pass
