"""A base model by Hugging Face id or path: a folder of files, pinned by revision."""

from pathlib import Path

from schemas import FoundryError

_NEEDED = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")


def model_folder(model: str | None, revision: str | None) -> Path:
    """Folder of a model: a path as it is; an id from the local cache, downloaded if need be.

    Raises:
        FoundryError: no model is named, or it cannot be had.
    """
    if not model:
        raise FoundryError("training.base_model: source is huggingface, so set `model` as well")
    if Path(model).is_dir():
        return Path(model).absolute()
    if not revision:
        raise FoundryError(
            f"training.base_model: {model} is no folder here, so it is an id: set `revision` to "
            "the commit that is meant"
        )
    return _downloaded(model, revision)


def _downloaded(model: str, revision: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=list(_NEEDED)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise FoundryError(
            f"training.base_model: {model} at {revision} cannot be downloaded: {reason}"
        ) from error
