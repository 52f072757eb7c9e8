"""Planner, critic and scorer at OpenAI, or at any endpoint that speaks its chat completions."""
