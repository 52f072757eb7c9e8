"""The studio: the page at `/` on which users create sequences, watch them, compare agents and search the history."""
