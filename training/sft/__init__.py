"""Supervised fine-tuning of planner and critic with LLaMA-Factory."""

from .job import sft_job
from .settings import SftSettings

__all__ = ["SftSettings", "sft_job"]
