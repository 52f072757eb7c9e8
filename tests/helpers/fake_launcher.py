"""A launcher that hands out the base model instead of training it."""

from training.base_model import PACKAGED_MODEL
from training.launch.jobs import TrainingOutcome, TrainingProgress


class FakeLauncher:
    """Notes the jobs that it gets."""

    def __init__(self):
        self.jobs = []

    async def run_job(self, context, job, settings, progress):
        self.jobs.append(job)
        model = job.folder / "model"
        model.mkdir(parents=True)
        for file in PACKAGED_MODEL.iterdir():
            (model / file.name).symlink_to(file)
        curve = [TrainingProgress(step=1, total=1, loss=0.5)]
        return TrainingOutcome(model=model, metrics={"loss": 0.5, "steps": 1}, curves=curve)
