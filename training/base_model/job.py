"""The base model as a training job, and the one that is shipped."""

from pathlib import Path

from ..launch import TrainerJob
from .settings import BaseModelSettings

_PACKAGED = Path(__file__).parent / "packaged"


def base_model_job(name: str, folder: Path, settings: BaseModelSettings) -> TrainerJob:
    """Teach a tiny model from scratch, in `folder`."""
    return TrainerJob(
        name=name,
        module=f"{__package__}.driver",
        folder=folder,
        payload=settings.model_dump(mode="json"),
        environment={
            "OMP_NUM_THREADS": str(settings.lessons.threads),
            "OMP_WAIT_POLICY": "PASSIVE",  # idle threads sleep: other work may need the cores
        },
    )


def packaged() -> Path | None:
    """Folder of the model that comes with the project, in Hugging Face format."""
    return _PACKAGED if (_PACKAGED / "model.safetensors").exists() else None
