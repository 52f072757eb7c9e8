"""The sketch world as a backend of all four roles: no network, no weights, no GPU."""
