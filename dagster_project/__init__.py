"""Dagster's code location and the commands."""

import gc

# Nearly all objects that imports make stay: to look for garbage among them as often as Python does
# by itself takes a fifth of the time in which definitions and commands load.
gc.set_threshold(50_000)
