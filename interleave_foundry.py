"""Interleave Foundry: from a taxonomy to agents that tell stories in pictures and text."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warehouse.views import query

__all__ = ["query"]


def __getattr__(name: str) -> Any:
    """`query` pulls in DuckDB, so it is imported by whoever asks for it."""
    if name == "query":
        from warehouse.views import query

        return query
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
