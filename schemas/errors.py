"""Errors a user sees: one line that says what is wrong and what to do about it."""


class FoundryError(Exception):
    """A problem the user can fix; the CLI prints its message alone, never a traceback."""


class DocumentError(FoundryError):
    """A YAML document (pack, profile) that does not validate; names file, line and key."""


class SchemaMismatchError(FoundryError):
    """A stored table whose schema version or columns differ from this code's."""


class BadImageError(FoundryError):
    """Bytes that do not decode to a picture, or do not match their content hash."""


class StorageError(FoundryError):
    """The lake, the image store or a journal cannot be read or written; the old data is kept."""
