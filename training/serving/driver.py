"""Job and driver of a server: runs vLLM for as long as the process that started it.

`python -m training.serving.driver JOB.json`; its exit code is vLLM's.
"""

import sys

from pydantic import Field

from schemas.yaml_config import ConfigModel

from ..launch.driver import DRIVER_LOG, open_driver


class ServerJob(ConfigModel):
    """Payload of the driver."""

    command: list[str] = Field(description="vLLM's command line")
    variables: dict[str, str] = Field(description="Variables beside those of this process")


def main() -> None:
    with open_driver(sys.argv) as driver:
        job = ServerJob.model_validate(driver.job.payload)
        log = driver.job.folder / DRIVER_LOG
        code = driver.run_trainer(job.command, job.variables, log, lambda: None)
        raise SystemExit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
