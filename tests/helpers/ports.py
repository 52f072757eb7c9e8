"""Ports for servers that tests start."""

import socket

_given: set[int] = set()


def free_port() -> int:
    """A port of loopback that is free now; never the same one twice in a process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        if port in _given:
            return free_port()
    _given.add(port)
    return port


def ray_agent_ports() -> dict[str, int]:
    """Ports of a Ray node's agents, by Ray's names.

    Where Ray chooses them, a node gives up if its agents take more than 15 s to start, as they do
    on a busy machine (ray-project/ray#65983).
    """
    names = ("dashboard_agent_listen", "metrics_agent", "metrics_export", "runtime_env_agent")
    return {f"{name}_port": free_port() for name in names}
