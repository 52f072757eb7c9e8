"""The lake: Parquet tables, content-addressed images, journals, and DuckDB views over them.

`sql` and `views`, which import DuckDB, are imported where they are needed.
"""

from .home import AnyJournal, Home
from .images import EncodedImage, ImageStore
from .journal import Journal
from .lake import Lake, WriteResult

__all__ = ["AnyJournal", "EncodedImage", "Home", "ImageStore", "Journal", "Lake", "WriteResult"]
