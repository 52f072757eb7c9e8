"""The supervisor, on a machine with a GPU that only it sees, and without patience.

With $SLOW_START_SECONDS it waits between taking its lock and claiming GPUs.
"""

import os
import sys
import time

from inference.servers import hosts, supervisor

hosts.gpus = lambda: 1
supervisor._ORPHANED_SECONDS = supervisor._ABANDONED_SECONDS = 1.0
supervisor._BEAT_SECONDS = 0.1
_enter = hosts.LocalHost.enter


def _enter_slowly(host):
    time.sleep(float(os.environ.get("SLOW_START_SECONDS", 0)))
    _enter(host)


hosts.LocalHost.enter = _enter_slowly

if __name__ == "__main__":
    sys.exit(supervisor.main(sys.argv[1:]))
