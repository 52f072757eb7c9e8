"""One pinned environment for each trainer and for vLLM, made on first use."""

from .environments import Hardware, Purpose, environment_of, gpus, python_of

__all__ = ["Hardware", "Purpose", "environment_of", "gpus", "python_of"]
