"""From data sets to checkpoints: environments, launchers, base model, SFT, rewards, GRPO."""
