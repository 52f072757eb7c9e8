"""verl on a CPU: platform, engine and rollout server, through verl's own registries.

verl imports it in every one of its processes (VERL_USE_EXTERNAL_MODULES=verl_cpu,verl_masking and
VERL_PLATFORM=cpu); the configuration then says `trainer.device=cpu` and
`actor_rollout_ref.rollout.name=batched_cpu`. It runs in the trainer's interpreter only.
"""

from . import platform

NAME = "batched_cpu"

platform.register()

from . import engine  # noqa: E402  verl's engines use the platform when they are imported

engine.register(NAME)
