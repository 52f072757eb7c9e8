"""Exports: the data sets as LLaMA-Factory, verl, the reference and Hugging Face read them."""

from .folder import PlaceholderError
from .publisher import FORMAT_VERSION, Exported, export_all, published

__all__ = ["FORMAT_VERSION", "Exported", "PlaceholderError", "export_all", "published"]
