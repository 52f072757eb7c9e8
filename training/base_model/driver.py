"""Job and driver of the base model, and the model that comes with the project."""

import sys
from pathlib import Path

from ..launch.driver import open_driver
from ..launch.jobs import TrainerJob
from .pretrain import pretrain
from .settings import BaseModelSettings

_PACKAGED = Path(__file__).parent / "packaged"


def packaged_model() -> Path | None:
    """Folder of the model that comes with the project, in Hugging Face format."""
    return _PACKAGED if (_PACKAGED / "model.safetensors").exists() else None


def base_model_job(name: str, folder: Path, settings: BaseModelSettings) -> TrainerJob:
    """Pretrain a tiny model from scratch, in `folder`."""
    return TrainerJob(
        name=name,
        module=__name__,
        folder=folder,
        payload=settings.model_dump(mode="json"),
        environment={
            "OMP_NUM_THREADS": str(settings.lessons.threads),
            "OMP_WAIT_POLICY": "PASSIVE",  # idle threads sleep: other work may need the cores
        },
    )


def main() -> None:
    with open_driver(sys.argv) as driver:
        settings = BaseModelSettings.model_validate(driver.job.payload)
        model = driver.job.folder / "model"
        driver.finish(model, pretrain(model, settings, driver.progress))


if __name__ == "__main__":
    main()
