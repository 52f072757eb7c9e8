"""The weights of EditScore: a vision-language model, with the adapter merged into it."""

import sys
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from warehouse.storage import first_line

from ...roles import BackendError
from ..checkpoint.encoding import Encoder, PromptLayout
from ..checkpoint.model import LoadedModel
from ..checkpoint.pixels import resize_to_pixels
from ..model_files import cached_file, device_and_dtype, has_gpu, is_installed
from .settings import EditScoreSettings

# Images come before the text; the variant on Qwen2.5-VL was trained with numbered images.
_LAYOUTS = {
    "qwen3_vl": PromptLayout(),
    "qwen2_5_vl": PromptLayout(
        turn="<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" + PromptLayout().turn,
        image="<img{number}>: " + PromptLayout().image,
    ),
}
# The model's own image processor chooses the size; only sizes that it rejects are changed.
_ANY_SIZE = partial(resize_to_pixels, least=1, most=sys.maxsize)
_MODEL_FILES = ("model.safetensors", "model.safetensors.index.json")
_ADAPTER_FILES = ("adapter_model.safetensors",)


def missing_requirements(settings: EditScoreSettings) -> Iterator[str]:
    """Why it cannot be used on this machine, in a few words each; nothing: it can."""
    packages = ["transformers", *(["peft"] if settings.adapter else [])]
    yield from (f"no package {name}" for name in packages if not is_installed(name))
    if settings.device != "cpu" and not has_gpu():
        yield "no GPU"
    if not _has_any(settings.model, settings.revision, _MODEL_FILES):
        yield f"{settings.model} not downloaded"
    adapter = settings.adapter
    if adapter and not _has_any(adapter, settings.adapter_revision, _ADAPTER_FILES):
        yield f"{adapter} not downloaded"


def _has_any(model: str, revision: str | None, files: tuple[str, ...]) -> bool:
    return any(cached_file(model, revision, file) for file in files)


def load(settings: EditScoreSettings, identity: str) -> LoadedModel:
    """The model that the settings name; a process caches the last one.

    Raises:
        BackendError: the weights are unavailable, or cannot be loaded.
    """
    source = settings.model_dump(
        include={"model", "revision", "adapter", "adapter_revision", "device", "dtype"}
    )
    return _load(identity, **source)


@lru_cache(maxsize=1)
def _load(
    identity: str,
    model: str,
    revision: str | None,
    adapter: str | None,
    adapter_revision: str | None,
    device: str,
    dtype: str,
) -> LoadedModel:
    device, torch_dtype = device_and_dtype(device, dtype)
    try:
        loaded = _load_model(model, revision, torch_dtype)
        if adapter is not None:
            loaded = _merge_adapter(loaded, adapter, adapter_revision)
        encoder = _encoder(model, revision, loaded.config.model_type)
        return LoadedModel(identity, encoder, loaded.to(device).eval())
    except BackendError:
        raise
    except Exception as error:  # transformers, peft, safetensors and the hub raise all kinds
        raise BackendError(
            f"editscore {identity} cannot be loaded on {device}: {first_line(error)}"
        ) from error


def _load_model(model: str, revision: str | None, dtype: Any) -> Any:
    from transformers import AutoConfig, AutoModelForImageTextToText
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model_type = AutoConfig.from_pretrained(model, revision=revision).model_type
    if model_type not in _LAYOUTS:
        raise BackendError(
            f"editscore.model {model} is a {model_type}; EditScore is for {' and '.join(_LAYOUTS)}"
        )
    return AutoModelForImageTextToText.from_pretrained(
        model, revision=revision, dtype=dtype, use_safetensors=True
    )


def _merge_adapter(model: Any, adapter: str, revision: str | None) -> Any:
    """The model with all of an adapter's weights merged.

    `PeftModel.from_pretrained` only warns about weights that do not match, and the untrained model
    would give the ratings.
    """
    from peft import PeftConfig, PeftModel

    tuned = PeftModel(model, PeftConfig.from_pretrained(adapter, revision=revision))
    result = tuned.load_adapter(adapter, "default", revision=revision)
    unmatched = [*result.missing_keys, *result.unexpected_keys]
    if unmatched:
        raise BackendError(
            f"editscore.adapter {adapter} is not for this model: {len(unmatched)} of its weights "
            f"do not match or are missing, such as {unmatched[0]}"
        )
    return tuned.merge_and_unload()


def _encoder(model: str, revision: str | None, model_type: str) -> Encoder:
    from transformers import AutoImageProcessor, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, revision=revision)
    image_processor = AutoImageProcessor.from_pretrained(model, revision=revision)
    return Encoder(tokenizer, image_processor, _ANY_SIZE, _LAYOUTS[model_type])
