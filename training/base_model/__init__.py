"""The base model of the sketch world: a tiny Qwen3-VL that has learned to say what it sees."""

from .job import base_model_job, packaged

__all__ = ["base_model_job", "packaged"]
