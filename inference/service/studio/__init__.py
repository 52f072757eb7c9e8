"""The studio: the page at `/` on which users create, compare and find sequences."""
