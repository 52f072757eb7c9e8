"""Servers of models that the home's processes start, share and stop: agents on vLLM, generators."""
