"""Data of other people: prompt files as packs, training rows as tables, with their provenance."""
