"""New terms for vocabulary banks: what a model is asked, and what becomes of its proposals."""
