"""verl's main program, whose Ray workers are forked instead of started.

verl starts eight workers, mostly one after the other, and each imports torch, transformers and
others for some 15 seconds of one core. `python -m verl_forked OVERRIDES...` imports them once. Ray
starts a worker by the command `python verl_forked.py --worker SOCKET SCRIPT ARGUMENTS...` (runtime
environment, `py_executable`): that process passes its command line, environment, folder and
standard streams to the fork server, and lives as long as the worker that is forked for it.

For a CPU only: a process that has used an accelerator cannot be forked.
"""

import json
import os
import random
import runpy
import shlex
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path

# Most of what verl imports. Not Ray, which reads its worker's variables then, and so not verl.
_PACKAGES = (
    "tensordict",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint.state_dict",
    "torchvision",
    "transformers.models.qwen3_vl.modeling_qwen3_vl",
    "accelerate",
    "peft",
    "datasets",
    "fastapi",
    "aiohttp",
    "hydra",
)
_WORKER = "--worker"
_MAX_MESSAGE = 1 << 17  # bytes of a command line with its environment
_PARENT_SECONDS = 1.0  # between looks whether the main program still runs
_STREAMS = (0, 1, 2)


def main() -> None:
    """Run verl's main program on the command line, beside the fork server of its Ray workers."""
    for package in _PACKAGES:
        import_module(package)
    address = str(Path(os.environ["RAY_TMPDIR"]) / "fork.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    parent = os.getpid()
    if not os.fork():
        _serve(listener, parent)
        return
    listener.close()
    # -P: the folder of this file must not come before the standard library.
    worker = shlex.join([sys.executable, "-P", __file__, _WORKER, address])
    quoted = json.dumps(worker, ensure_ascii=False)  # a path may have spaces and quotes
    sys.argv.append(f"+ray_kwargs.ray_init.runtime_env.py_executable={quoted}")
    from verl.trainer.main_ppo import main as train

    train()


def _serve(listener: socket.socket, parent: int) -> None:
    """Fork a worker for every connection until the main program has ended.

    Returns in each worker, at its end.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps
    listener.settimeout(_PARENT_SECONDS)
    while os.getppid() == parent:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            _run_worker(connection)
            return
        connection.close()
    os._exit(0)


def _run_worker(connection: socket.socket) -> None:
    """Become the process that was asked for; the connection closes when it ends."""
    import numpy as np

    message, streams, *_ = socket.recv_fds(connection, _MAX_MESSAGE, len(_STREAMS))
    command, variables, folder = json.loads(message)
    for stream, number in zip(streams, _STREAMS, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    random.seed()  # not the same numbers in every worker
    np.random.seed()
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")


def _request_worker(address: str, command: list[str]) -> None:
    """Have a worker forked, and wait for its end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(address)
        message = json.dumps([command, dict(os.environ), str(Path.cwd())]).encode()
        socket.send_fds(connection, [message], _STREAMS)
        connection.recv(1)


if __name__ == "__main__":
    if sys.argv[1:2] == [_WORKER]:
        _request_worker(sys.argv[2], sys.argv[3:])
    else:
        main()
