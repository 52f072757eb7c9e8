"""The tables of the lake: row models, Arrow schemas, errors. Imports no other package of ours."""

from . import benchmarks, curation, generations, imports, prompts, reviews, training, trajectories
from .base import Row, Table
from .errors import BadImageError, DocumentError, FoundryError, SchemaMismatchError, StorageError

TABLES: dict[str, Table] = {
    table.name: table
    for module in (
        prompts,
        trajectories,
        reviews,
        curation,
        imports,
        training,
        generations,
        benchmarks,
    )
    for table in vars(module).values()
    if isinstance(table, Table)
}

__all__ = [
    "TABLES",
    "BadImageError",
    "DocumentError",
    "FoundryError",
    "Row",
    "SchemaMismatchError",
    "StorageError",
    "Table",
]
