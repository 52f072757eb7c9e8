"""One pinned virtual environment for each trainer and for vLLM, installed on first use."""

from .environments import Hardware, Purpose, ensure_environment, environment_of, gpus

__all__ = ["Hardware", "Purpose", "ensure_environment", "environment_of", "gpus"]
