"""A user's request: which agents run it, the run, its rows, its event log and its files."""
