"""Schemathesis sends what the OpenAPI document allows and what it forbids."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.inference.service.running_service import running_service

pytestmark = [pytest.mark.slow, pytest.mark.long]

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
# Without `positive_data_acceptance`: a valid request may ask for something that cannot be drawn.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


def test_every_request_is_answered_as_the_document_says(home, tmp_path):
    with running_service(home, deadline_seconds=20) as service:
        done = subprocess.run(
            [
                SCHEMATHESIS,
                "run",
                f"{service.url}/openapi.json",
                f"--checks={','.join(CHECKS)}",
                "--max-examples=20",
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
