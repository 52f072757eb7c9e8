"""Interleave Foundry: `interleave_foundry.query("SELECT ...")` reads the lake from Python."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warehouse.sql import query

__all__ = ["query"]


def __getattr__(name: str) -> Any:
    """Imports `query`, and DuckDB with it, on first use."""
    if name == "query":
        from warehouse.sql import query

        return query
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
