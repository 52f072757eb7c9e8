"""Agents' prompts and answers: versioned templates, formatting for training, parsing."""
