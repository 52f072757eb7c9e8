"""The average of a trained model with the one that it started from."""

from pathlib import Path
from tempfile import TemporaryDirectory

from inference.backends.checkpoint.model import load_weights

_WEIGHTS = "*.safetensors*"  # and their index


def average_with_parent(model: Path, parent: Path, share: float) -> None:
    """Make the weights of a folder those of `parent` by this share, and its own by the rest.

    Between both, a model keeps most of what it learned and forgets less of what its parent knew
    (Wortsman et al., Robust fine-tuning of zero-shot models, 2022). Both are in memory at once.
    """
    import torch

    own, start = (load_weights(folder, dtype="auto") for folder in (model, parent))
    theirs = dict(start.named_parameters())
    with torch.no_grad():  # in float32: bfloat16 would round small changes away
        for name, ours in own.named_parameters():  # tied ones once
            ours.copy_(torch.lerp(ours.float(), theirs[name].float(), share))
    with TemporaryDirectory(dir=model.parent) as folder:  # the model's files may be mapped
        own.save_pretrained(folder)
        for path in model.glob(_WEIGHTS):
            path.unlink()
        for path in Path(folder).glob(_WEIGHTS):
            path.replace(model / path.name)
