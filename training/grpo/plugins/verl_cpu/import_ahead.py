"""Ray workers that have imported verl before one of verl's actors needs them.

verl starts its actors one after the other, and each imports verl for some 15 seconds on one core.
Ray gives an actor an idle worker of the same runtime environment: these import at the same time.
"""

from typing import Any

import ray

_WORKERS = 6  # task runner, storage, rewards, rollout server, agent loop, its load balancer


def register() -> None:
    """Start the workers as soon as there is a Ray."""
    initialize: Any = ray.init

    def initialize_and_import(*args: Any, **options: Any) -> Any:
        context = initialize(*args, **options)
        for _ in range(_WORKERS):
            _import_verl.remote()
        return context

    ray.init = initialize_and_import


@ray.remote
def _import_verl() -> None:
    import verl.experimental.agent_loop
    import verl.trainer.main_ppo  # noqa: F401
