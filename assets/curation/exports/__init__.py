"""Exports: the data sets as LLaMA-Factory, verl, the reference and Hugging Face read them."""

from .folder import PlaceholderError
from .publisher import FORMAT_VERSION, PublishedExport, export_all, published_fingerprints

__all__ = [
    "FORMAT_VERSION",
    "PlaceholderError",
    "PublishedExport",
    "export_all",
    "published_fingerprints",
]
