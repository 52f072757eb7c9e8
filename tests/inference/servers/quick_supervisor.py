"""The supervisor, on a machine with a GPU that only it sees, and without patience."""

import sys

from training.serving import gpu_hours, managed, placement

placement.gpus = lambda: 1
managed._ORPHANED_SECONDS = managed._ABANDONED_SECONDS = 1.0
gpu_hours._BEAT_SECONDS = 0.1

if __name__ == "__main__":
    sys.exit(managed.main(sys.argv[1:]))
