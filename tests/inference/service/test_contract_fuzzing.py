"""Schemathesis sends what the OpenAPI document allows and forbids; the service answers it all."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.inference.service.running_service import running

pytestmark = pytest.mark.slow

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
# That a request of the right form may still be unanswerable (nothing that can be drawn) is no lie
# of the document, so `positive_data_acceptance` is left out.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


def test_no_request_breaks_it_and_the_document_is_true(home, tmp_path):
    with running(home, deadline_seconds=20) as service:
        done = subprocess.run(
            [
                SCHEMATHESIS,
                "run",
                f"{service.url}/openapi.json",
                f"--checks={','.join(CHECKS)}",
                "--max-examples=40",
                "--seed=5",
                "--request-timeout=30",
                "--phases=examples,coverage,fuzzing",
                "--suppress-health-check=all",
                "--generation-database=none",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert service.get("/health").json() == {"status": "alive"}
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
