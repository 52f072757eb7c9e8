"""Supervised fine-tuning of planner and critic with LLaMA-Factory."""
