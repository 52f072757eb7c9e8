"""Pictures from diffusers pipelines in this process, and the registry of generators."""
