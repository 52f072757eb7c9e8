"""Driver of a server: runs it for as long as the process that started it.

`python -m training.serving.driver JOB.json`; its exit code is the server's.
"""

import sys

from ..launch.driver import open_driver
from ..launch.supervisor import DRIVER_LOG


def main() -> None:
    with open_driver(sys.argv) as driver:
        # the command line, and its variables beside those of this process
        command, variables = driver.job.payload["command"], driver.job.payload["variables"]
        code = driver.run_trainer(command, variables, driver.job.folder / DRIVER_LOG)
        raise SystemExit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
