"""Planner, critic and scorer at OpenAI, or at any endpoint with its chat completions API."""
