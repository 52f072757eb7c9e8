"""The weights of EditScore in memory: a vision-language model, with the adapter merged into it."""

import sys
from functools import lru_cache, partial
from typing import Any

from warehouse.storage import first_line

from ...roles import BackendError
from .. import torch_cpu_shim
from ..checkpoint.encoding import Encoder, PromptLayout
from ..checkpoint.model import LoadedModel
from ..checkpoint.pixels import resize_to_pixels
from .settings import EditScoreSettings

# Pictures come before the text, and the one on Qwen2.5-VL was trained with their numbers.
_LAYOUTS = {
    "qwen3_vl": PromptLayout(),
    "qwen2_5_vl": PromptLayout(
        turn="<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" + PromptLayout().turn,
        picture="<img{number}>: " + PromptLayout().picture,
    ),
}
# The model's own image processor finds the size; shapes that it refuses are made fit.
_ANY_SIZE = partial(resize_to_pixels, least=1, most=sys.maxsize)


def load(settings: EditScoreSettings, identity: str) -> LoadedModel:
    """The model that the settings name; a process keeps the weights of the last one.

    Raises:
        BackendError: the weights are not there and cannot be had, or cannot be loaded.
    """
    where = settings.model_dump(
        include={"model", "revision", "adapter", "adapter_revision", "device", "dtype"}
    )
    return _load(identity, **where)


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
    torch_cpu_shim.install()
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    try:
        tuned = _model(model, revision, getattr(torch, dtype))
        if adapter is not None:
            tuned = _merged(tuned, adapter, adapter_revision)
        return LoadedModel(identity, _encoder(model, revision, tuned), tuned.to(device).eval())
    except BackendError:
        raise
    except Exception as error:  # transformers, peft, safetensors and the hub raise all kinds
        raise BackendError(
            f"editscore {identity} cannot be loaded on {device}: {first_line(error)}"
        ) from error


def _model(model: str, revision: str | None, dtype: Any) -> Any:
    from transformers import AutoConfig, AutoModelForImageTextToText
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    kind = AutoConfig.from_pretrained(model, revision=revision).model_type
    if kind not in _LAYOUTS:
        raise BackendError(
            f"editscore.model {model} is a {kind}; EditScore is for {' and '.join(_LAYOUTS)}"
        )
    return AutoModelForImageTextToText.from_pretrained(
        model, revision=revision, dtype=dtype, use_safetensors=True
    )


def _merged(model: Any, adapter: str, revision: str | None) -> Any:
    """The model with all of an adapter's weights in it.

    `PeftModel.from_pretrained` only warns where a weight finds no place, and what then gave the
    marks would be the untrained model.
    """
    from peft import PeftConfig, PeftModel

    tuned = PeftModel(model, PeftConfig.from_pretrained(adapter, revision=revision))
    result = tuned.load_adapter(adapter, "default", revision=revision)
    lost = [*result.missing_keys, *result.unexpected_keys]
    if lost:
        raise BackendError(
            f"editscore.adapter {adapter} is not for this model: {len(lost)} of its weights have "
            f"no place or are missing, such as {lost[0]}"
        )
    return tuned.merge_and_unload()


def _encoder(model: str, revision: str | None, tuned: Any) -> Encoder:
    from transformers import AutoImageProcessor, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, revision=revision)
    images = AutoImageProcessor.from_pretrained(model, revision=revision)
    return Encoder(tokenizer, images, _ANY_SIZE, _LAYOUTS[tuned.config.model_type])
