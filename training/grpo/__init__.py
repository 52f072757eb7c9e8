"""GRPO of the critic with verl: settings, recipe, driver, and what verl needs on a CPU."""
