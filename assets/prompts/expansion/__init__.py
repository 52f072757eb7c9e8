"""New terms for vocabulary banks, proposed by a model and filtered before they join a pack."""
