"""`python -m tools.base_model FOLDER` pretrains the model anew: 80 minutes on two CPU cores.

Started again it resumes.
"""

import sys
from pathlib import Path

from .pretrain import BaseModelSettings, pretrain

if __name__ == "__main__":
    pretrain(
        Path(sys.argv[1]),
        BaseModelSettings(),
        lambda progress: print(f"{progress.step} of {progress.total}: {progress.note()}"),
    )
