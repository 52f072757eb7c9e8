"""The tables of the lake, and views over them: row models, Arrow schemas, errors.

Imports no other package of ours.
"""

from . import (
    analysis,
    benchmarks,
    costs,
    curation,
    generations,
    prompts,
    reviews,
    rounds,
    training,
    trajectories,
)
from .base import Row, Table, View
from .errors import BadImageError, DocumentError, FoundryError, SchemaMismatchError, StorageError

TABLES: dict[str, Table] = {
    table.name: table
    for module in (
        prompts,
        trajectories,
        reviews,
        curation,
        training,
        rounds,
        costs,
        generations,
        benchmarks,
    )
    for table in vars(module).values()
    if isinstance(table, Table)
}

VIEWS: dict[str, View] = {
    view.name: view
    for module in (analysis, costs)
    for view in vars(module).values()
    if isinstance(view, View)
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
