"""Supervised fine-tuning over several nodes that see the job's folder: torchrun on each.

The driver trains on the first node and writes there, for the others, where nodes meet. On each of
them runs `python -m training.sft.nodes FOLDER RANK`, RANK from 1: it joins every attempt of the
driver until the model is there.
"""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field

from inference.environments import ensure_environment
from inference.servers.ray_jobs import free_port, reachable_host
from schemas.yaml_config import ConfigModel
from warehouse.atomic import atomic_write

from ..launch.jobs import TrainerJob
from .recipe import CONFIG, SftJob, SftRecipe, environment, read_recipe

_FILE = "nodes.json"
_POLL_SECONDS = 1.0


class Rendezvous(ConfigModel):
    """Where the nodes of an attempt at a training meet."""

    attempt: str = Field(description="Unique")
    address: str = Field(description="Of the first node")
    port: int = Field(description="Free there")

    def variables(self, nodes: int, rank: int, recipe: SftRecipe) -> dict[str, str]:
        """What LLaMA-Factory passes to torchrun on the node of a rank."""
        return {
            "FORCE_TORCHRUN": "1",
            "NNODES": str(nodes),
            "NODE_RANK": str(rank),
            "NPROC_PER_NODE": str(max(recipe.gpus, 1)),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }


@contextmanager
def rendezvous(folder: Path) -> Iterator[Rendezvous]:
    """Call the other nodes to an attempt, while the context is open.

    MASTER_ADDR and MASTER_PORT come first where they are set.
    """
    address = os.environ.get("MASTER_ADDR") or reachable_host()
    port = int(os.environ.get("MASTER_PORT") or free_port())
    meeting = Rendezvous(attempt=uuid.uuid4().hex, address=address, port=port)
    atomic_write(folder / _FILE, meeting.model_dump_json())
    try:
        yield meeting
    finally:
        (folder / _FILE).unlink(missing_ok=True)


def join(folder: Path, rank: int) -> None:
    """Train on this node whenever the driver does, until the model is there."""
    attempt = ""
    while not (folder / "model").is_dir():
        meeting = _read(folder) if (folder / CONFIG).is_file() else None
        if meeting is None or meeting.attempt == attempt:
            time.sleep(_POLL_SECONDS)
            continue
        attempt = meeting.attempt
        code = _train(folder, rank, meeting)
        print(f"node {rank}: LLaMA-Factory ended with {code}", flush=True)


def _train(folder: Path, rank: int, meeting: Rendezvous) -> int:
    payload = TrainerJob.model_validate_json((folder / "job.json").read_text("utf-8")).payload
    settings = SftJob.model_validate(payload).settings
    recipe = read_recipe(settings)
    python = ensure_environment("sft", "gpu" if recipe.gpus else "cpu")
    variables = environment(recipe, python, folder) | meeting.variables(
        settings.nodes, rank, recipe
    )
    command = [str(python.parent / "llamafactory-cli"), "train", CONFIG]
    with (folder / f"node-{rank}.log").open("ab") as log:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **variables}, stdout=log, stderr=log
        )
    return done.returncode


def _read(folder: Path) -> Rendezvous | None:
    try:
        return Rendezvous.model_validate_json((folder / _FILE).read_bytes())
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    join(Path(sys.argv[1]).absolute(), int(sys.argv[2]))
