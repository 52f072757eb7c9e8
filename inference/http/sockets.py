"""The port of a server, and the signals that end it."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

from ..roles import BackendError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BACKLOG = 2048


def on_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return False


@contextmanager
def listening_socket(host: str, port: int) -> Iterator[socket.socket]:
    """The open port; who comes before the server runs waits.

    Raises:
        BackendError: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        door = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise BackendError(
            f"cannot listen on {host}:{port}: {error.strerror}; name another --host or --port"
        ) from error
    with door:
        yield door


@contextmanager
def shutdown_signals() -> Iterator[None]:
    """TERM ends the block as Ctrl-C does, and neither is an error."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        install_signals()
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def install_signals() -> None:
    """Once more, where a library has put handlers of its own."""
    for number in SIGNALS:
        signal.signal(number, _end)


def ignore_signals() -> None:
    """While something is being ended of which half would be left otherwise."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: object) -> None:
    raise KeyboardInterrupt
