"""A Ray cluster of several nodes on this machine, for as long as a test lasts."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from inference.images_server.ray_replicas import RAY_TIMED_OUT
from inference.servers.processes import find_marked, terminate_processes
from tests.helpers.ports import free_port, ray_agent_ports
from tests.helpers.ray_jobs import wait_for_jobs

_MARK = "INTERLEAVE_TEST_RAY_NODES"


class Nodes:
    """Worker nodes of one CPU each; the head takes no work.

    Args:
        gpus: that each worker node says it has.

    Attributes:
        address: of the job server.
    """

    def __init__(self, count: int, folder: Path, gpus: int = 0) -> None:
        from ray._common.utils import get_default_ray_temp_dir
        from ray._private.utils import write_ray_address
        from ray.cluster_utils import Cluster

        # `Cluster` writes its address file there, whatever the nodes' temporary folder.
        Path(get_default_ray_temp_dir()).mkdir(parents=True, exist_ok=True)
        self.address = f"http://127.0.0.1:{free_port()}"
        head = {
            "num_cpus": 0,
            "object_store_memory": 80_000_000,
            "include_dashboard": True,
            "dashboard_port": int(self.address.rsplit(":", 1)[1]),
            **ray_agent_ports(),
            "temp_dir": str(folder),
        }
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        # Jobs look here for it; else they take any Ray of this machine, perhaps another test's.
        write_ray_address(self._cluster.address, str(folder))
        self._gpus = gpus
        self._workers: dict[str, Any] = {}
        for _ in range(count):
            self.add()

    def add(self) -> str:
        """One more worker node; returns its id."""
        resources = {"num_cpus": 1, "num_gpus": self._gpus}
        ports = ray_agent_ports()
        node = self._cluster.add_node(object_store_memory=80_000_000, **resources, **ports)
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


@contextmanager
def ray_nodes(count: int, gpus: int = 0) -> Iterator[Nodes]:
    """Nodes that inherit this process's environment, and of which nothing is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        os.environ[_MARK] = folder
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        try:
            nodes = _started(count, Path(folder), gpus)
            wait_for_jobs(nodes.address)
            yield nodes
            nodes.stop()
        finally:
            del os.environ[_MARK]
            terminate_processes(lambda: find_marked(_MARK, folder), 5)


def _started(count: int, folder: Path, gpus: int) -> Nodes:
    """On a busy machine a node may need more than the 30 s that Ray gives it: then once more."""
    try:
        return Nodes(count, folder, gpus)
    except Exception as error:  # Ray has no class of its own for this
        if RAY_TIMED_OUT not in str(error):
            raise
    terminate_processes(lambda: find_marked(_MARK, str(folder)), 5)
    return Nodes(count, folder, gpus)


def _descendants(node: Any) -> list[psutil.Process]:
    raylets = node.all_processes["raylet"]
    parents = [psutil.Process(raylet.process.pid) for raylet in raylets]
    return [child for parent in parents for child in parent.children(recursive=True)]
