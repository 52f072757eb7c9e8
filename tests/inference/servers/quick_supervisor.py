"""The supervisor, on a machine with a GPU that only it sees, and without patience.

With $SLOW_START_SECONDS it waits between taking its lock and claiming GPUs.
"""

import os
import sys
import time

from training.serving import gpu_hours, managed, placement

placement.gpus = lambda: 1
managed._ORPHANED_SECONDS = managed._ABANDONED_SECONDS = 1.0
gpu_hours._BEAT_SECONDS = 0.1
_place = managed._placement


def _place_slowly(spec):
    time.sleep(float(os.environ.get("SLOW_START_SECONDS", 0)))
    return _place(spec)


managed._placement = _place_slowly

if __name__ == "__main__":
    sys.exit(managed.main(sys.argv[1:]))
