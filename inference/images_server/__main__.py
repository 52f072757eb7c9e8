"""`python -m inference.images_server MODEL REGISTRY NAME=VALUE...`: a server that another process
manages. REGISTRY may be empty; names are those of `ImagesServerSettings`."""

import sys
from pathlib import Path

from schemas import FoundryError

from .app import serve_images
from .settings import ImagesServerSettings

if __name__ == "__main__":
    model, registry, *values = sys.argv[1:]
    settings = ImagesServerSettings.model_validate(dict(value.split("=", 1) for value in values))
    try:
        serve_images(model, Path(registry) if registry else None, settings, print)
    except FoundryError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from error
