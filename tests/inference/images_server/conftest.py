"""Puts `served` and the tiny pipelines on the path."""

import sys
from pathlib import Path

from interleave_foundry.inference import cpu_torch

cpu_torch.install()  # before anything imports diffusers
sys.path.append(str(Path(__file__).parent.parent / "diffusers"))
