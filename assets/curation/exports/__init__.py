"""Exports: the data sets as LLaMA-Factory, verl, the reference and Hugging Face read them."""
