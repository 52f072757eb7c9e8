"""Dagster's runs as jobs of a Ray cluster."""

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus  # exported nowhere else
from dagster_ray import RayRunLauncher

from .instance import RUNNER_TAG


class ShardLauncher(RayRunLauncher):
    """Ray's launcher; what `interleave run` executes itself has no job, and is no dead run.

    The next command closes those whose process is gone.
    """

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        if RUNNER_TAG in run.tags:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return super().check_run_worker_health(run)
