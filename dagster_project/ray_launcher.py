"""Dagster's runs as jobs of a Ray cluster."""

from typing import Any

import dagster as dg
from dagster_ray import RayRunLauncher

from .instance import RUNNER_TAG


class ShardLauncher(RayRunLauncher):
    """Ray's launcher; what `interleave run` executes itself has no job, and is no dead run.

    The next command closes those whose process is gone.
    """

    def check_run_worker_health(self, run: dg.DagsterRun) -> Any:
        health = super().check_run_worker_health(run)
        if RUNNER_TAG not in run.tags:
            return health
        return health._replace(status=type(health.status).RUNNING)
