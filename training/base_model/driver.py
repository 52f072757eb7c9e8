"""Teaches the base model in a process of its own and reports how it goes."""

import sys

from ..launch import TrainingProgress, open_driver
from .pretrain import PretrainProgress, pretrain
from .settings import BaseModelSettings


def main() -> None:
    with open_driver(sys.argv) as driver:
        settings = BaseModelSettings.model_validate(driver.job.payload)
        model = driver.job.folder / "model"
        metrics = pretrain(model, settings, lambda taught: driver.progress(_told(taught)))
        driver.finish(model, metrics)


def _told(taught: PretrainProgress) -> TrainingProgress:
    return TrainingProgress(
        step=taught.step,
        total=taught.total,
        loss=taught.loss,
        samples_per_second=taught.samples_per_second,
    )


if __name__ == "__main__":
    main()
