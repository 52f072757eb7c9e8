"""Driver of a server: runs it for as long as the process that started it.

`python -m inference.servers.driver COMMAND.json`; its exit code is the server's.
"""

import json
import sys
from pathlib import Path

from .processes import DRIVER_LOG, prepare_driver, program_of_driver


def main(file: Path) -> int:
    prepare_driver()
    job = json.loads(file.read_bytes())  # the command line, and its variables beside our own
    with program_of_driver(job["command"], job["variables"], file.parent / DRIVER_LOG) as server:
        code = server.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
