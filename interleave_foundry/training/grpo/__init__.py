"""GRPO of the critic with verl: settings, recipe, driver, and what verl needs on a CPU."""

from .job import Players, grpo_job

__all__ = ["Players", "grpo_job"]
