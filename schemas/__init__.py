"""What a row is. Every table of the lake, by name; imports nothing else of ours."""

from . import curation, generations, prompts, training, trajectories
from .base import ForeignKey, Row, Table
from .errors import BadImageError, DocumentError, FoundryError, SchemaMismatchError, StorageError

TABLES: dict[str, Table] = {
    table.name: table
    for room in (prompts, trajectories, curation, training, generations)
    for table in vars(room).values()
    if isinstance(table, Table)
}

__all__ = [
    "TABLES",
    "BadImageError",
    "DocumentError",
    "ForeignKey",
    "FoundryError",
    "Row",
    "SchemaMismatchError",
    "StorageError",
    "Table",
]
