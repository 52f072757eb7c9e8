"""Waiting for a Ray cluster of a test."""

import time

_SECONDS = 240


def wait_for_jobs(address: str) -> None:
    """Until a job has run: the job server answers before a node can run any."""
    from ray.job_submission import JobSubmissionClient

    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            client = JobSubmissionClient(address)
            job = client.submit_job(entrypoint="true")
            break
        except Exception:  # requests', Ray's own
            assert time.monotonic() < deadline, "Ray's job server did not come up"
            time.sleep(1)
    while not client.get_job_status(job).is_terminal():
        assert time.monotonic() < deadline, "Ray runs no job"
        time.sleep(0.2)
    client.delete_job(job)
