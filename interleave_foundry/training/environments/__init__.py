"""One pinned environment per trainer, made on first use."""

from .environments import Hardware, Trainer, environment_of, python_of

__all__ = ["Hardware", "Trainer", "environment_of", "python_of"]
