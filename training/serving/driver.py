"""Driver of a server: vLLM for as long as whoever started it is there.

`python -m training.serving.driver JOB.json`; its exit code is vLLM's.
"""

import sys

from ..launch import open_driver
from ..launch.driver import DRIVER_LOG
from .job import ServerJob


def main() -> None:
    with open_driver(sys.argv) as driver:
        job = ServerJob.model_validate(driver.job.payload)
        log = driver.job.folder / DRIVER_LOG
        code = driver.run_trainer(job.command, job.variables, log, lambda: None)
        raise SystemExit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
