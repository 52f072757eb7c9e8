"""Planner, critic, scorer and generator at Google, through google-genai."""
