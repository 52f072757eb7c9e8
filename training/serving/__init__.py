"""Trained agents behind an endpoint: vLLM, in an environment of its own."""
