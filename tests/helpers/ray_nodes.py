"""A Ray cluster on this machine, for as long as a test lasts."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tenacity import stop_after_attempt

from inference.servers.processes import find_marked, terminate_processes
from inference.servers.ray_jobs import starting_ray
from tests.helpers.ports import free_port

_MARK = "INTERLEAVE_TEST_RAY_NODES"
_STORE = {"object_store_memory": 80_000_000}
_JOB_SECONDS = 240


class Nodes:
    """A head, and worker nodes of one CPU each.

    Args:
        gpus: that each worker node says it has.
        head_cpus: 0: the head takes no work.
        jobs: whether there is a job server.

    Attributes:
        address: of the job server.
    """

    def __init__(self, count: int, folder: Path, gpus: int, head_cpus: int, jobs: bool) -> None:
        from ray._common.utils import get_default_ray_temp_dir
        from ray._private.utils import write_ray_address
        from ray.cluster_utils import Cluster

        # `Cluster` writes its address file there, whatever the nodes' temporary folder.
        Path(get_default_ray_temp_dir()).mkdir(parents=True, exist_ok=True)
        self._folder = str(folder)
        self._cluster: Any = Cluster(initialize_head=False)
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self._start(
            num_cpus=head_cpus,
            include_dashboard=jobs,
            dashboard_port=port,
            dashboard_agent_listen_port=free_port(),  # Ray's default may be another test's
            temp_dir=self._folder,
        )
        # Jobs look here for it; else they take any Ray of this machine, perhaps another test's.
        write_ray_address(self._cluster.address, self._folder)
        self._gpus = gpus
        self._workers: dict[str, Any] = {}
        for _ in range(count):
            self.add()

    @property
    def gcs_address(self) -> str:
        """Where drivers join."""
        return str(self._cluster.address)

    def add(self) -> str:
        """One more worker node; returns its id."""
        node = self._start(num_cpus=1, num_gpus=self._gpus)
        self._workers[node.node_id] = node
        return str(node.node_id)

    def jobs(self) -> list[Any]:
        from ray.job_submission import JobSubmissionClient

        return JobSubmissionClient(self.address).list_jobs()

    def kill(self, node_id: str) -> None:
        """As if its machine had lost power: its runs die with it, not some time later."""
        node = self._workers.pop(node_id)
        for process in _descendants(node):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._cluster.remove_node(node, allow_graceful=False)

    def stop(self) -> None:
        self._cluster.shutdown()

    def _start(self, **node: Any) -> Any:
        """A node; once more than elsewhere, beside other tests."""
        starting = starting_ray(before_sleep=self._clear_head, stop=stop_after_attempt(4))
        return starting(self._cluster.add_node, **_STORE, **node)

    def _clear_head(self, _: object) -> None:
        """What there is of a head that did not start holds its port."""
        if self._cluster.head_node is None:
            terminate_processes(lambda: find_marked(_MARK, self._folder), 5)


@contextmanager
def ray_nodes(count: int, gpus: int = 0, head_cpus: int = 0, jobs: bool = True) -> Iterator[Nodes]:
    """Nodes that inherit this process's environment, and of which nothing is left afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(_MARK, folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        try:
            nodes = Nodes(count, Path(folder), gpus, head_cpus, jobs)
            if jobs:
                _wait_for_jobs(nodes.address)
            yield nodes
            nodes.stop()
        finally:
            terminate_processes(lambda: find_marked(_MARK, folder), 5)


def _wait_for_jobs(address: str) -> None:
    """Until a job has run: the job server answers before a node can run any."""
    from ray.job_submission import JobSubmissionClient

    deadline = time.monotonic() + _JOB_SECONDS
    while True:
        try:
            client = JobSubmissionClient(address)
            job = client.submit_job(entrypoint="true")
            break
        except Exception:  # requests', Ray's own
            assert time.monotonic() < deadline, "Ray's job server did not come up"
            time.sleep(1)
    while not client.get_job_status(job).is_terminal():
        assert time.monotonic() < deadline, "Ray runs no job"
        time.sleep(0.2)
    client.delete_job(job)


def _descendants(node: Any) -> list[psutil.Process]:
    raylets = node.all_processes["raylet"]
    parents = [psutil.Process(raylet.process.pid) for raylet in raylets]
    return [child for parent in parents for child in parent.children(recursive=True)]
