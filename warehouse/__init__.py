"""The lake: Parquet tables, content-addressed images, journals, and DuckDB views over them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .encoded_image import EncodedImage
from .home import AnyJournal, Home
from .images import ImageStore
from .journal import Journal
from .lake import Lake, WriteResult

if TYPE_CHECKING:
    from .sql import query
    from .views import connect, refresh_views

_LAZY = {"connect": "views", "query": "sql", "refresh_views": "views"}  # they import DuckDB

__all__ = [
    "AnyJournal",
    "EncodedImage",
    "Home",
    "ImageStore",
    "Journal",
    "Lake",
    "WriteResult",
    "connect",
    "query",
    "refresh_views",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
