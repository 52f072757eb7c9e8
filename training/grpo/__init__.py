"""GRPO of the critic with verl: settings, recipe, driver, and what verl needs on a CPU."""

from .job import RewardRoles, grpo_job

__all__ = ["RewardRoles", "grpo_job"]
