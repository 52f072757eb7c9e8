"""Teaches the base model in a process of its own and reports how it goes."""

import sys

from ..launch import TrainingProgress, open_driver
from .pretrain import Taught, pretrain
from .settings import BaseModelSettings


def main() -> None:
    with open_driver(sys.argv) as driver:
        settings = BaseModelSettings.model_validate(driver.job.payload)
        model = driver.job.folder / "model"
        batch = settings.lessons.batch
        metrics = pretrain(model, settings, lambda taught: driver.progress(_told(taught, batch)))
        driver.finish(model, metrics)


def _told(taught: Taught, batch: int) -> TrainingProgress:
    left = (taught.total - taught.step) * batch / taught.samples_per_second
    return TrainingProgress(
        step=taught.step,
        total=taught.total,
        loss=taught.loss,
        learning_rate=taught.learning_rate,
        samples_per_second=taught.samples_per_second,
        seconds_left=left,
    )


if __name__ == "__main__":
    main()
