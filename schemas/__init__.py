"""The tables of the lake, and views over them: row models, Arrow schemas, errors.

Imports no other package of ours.
"""

from . import benchmarks, curation, generations, prompts, rounds, training, trajectories, views
from .base import Row, Table, View
from .errors import BadImageError, DocumentError, FoundryError, SchemaMismatchError, StorageError

TABLES: dict[str, Table] = {
    table.name: table
    for module in (
        *(prompts, trajectories, curation, training),
        *(rounds, views, generations, benchmarks),
    )
    for table in vars(module).values()
    if isinstance(table, Table)
}

VIEWS: dict[str, View] = {
    view.name: view for view in vars(views).values() if isinstance(view, View)
}

__all__ = [
    "TABLES",
    "VIEWS",
    "BadImageError",
    "DocumentError",
    "FoundryError",
    "Row",
    "SchemaMismatchError",
    "StorageError",
    "Table",
    "View",
]
