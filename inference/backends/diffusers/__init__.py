"""The generator from a diffusers pipeline in this process, and the registry of generators."""
