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
