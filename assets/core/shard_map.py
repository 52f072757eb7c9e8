"""Runs functions over groups of shards in parallel, and yields their results in order.

On one machine the groups go to threads, since nearly all of their work is DuckDB's and Arrow's.
Where `RAY_ADDRESS` names a Ray cluster, as it does in a Dagster run that is one of its jobs, and
the lake is remote, they are tasks on its nodes. In both cases only some results are held at a time,
so their number does not matter.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import psutil
import pyarrow as pa

from schemas import FoundryError
from warehouse import Lake
from warehouse.storage import first_line

Result = TypeVar("Result")
Group = tuple[Any, ...]  # the arguments of a call: a list of shards, and what it needs of others
_WORKER_BYTES = 600_000_000  # that a group takes, and results that wait
_MAX_WORKERS = 16
_AHEAD = 2  # groups in work or finished for each worker


def map_shards(
    lake: Lake, function: Callable[..., Result], groups: Iterable[Group], count: int
) -> Iterator[Result]:
    """`function(*group)` of every group of shards of a lake, in their order.

    Args:
        function: of a module, or a `partial` of one; arguments and results can be pickled.
        groups: are read as workers become free.
        count: of the groups; a single one is computed in this thread.

    Raises (while it is read):
        FoundryError: a group failed.
    """
    guarded = partial(_guarded, function)
    if count <= 1:
        return (guarded(*group) for group in groups)
    if os.environ.get("RAY_ADDRESS") and not lake.storage.is_local:
        return _on_ray(guarded, groups, count)
    return _in_threads(guarded, groups)


def _in_threads(function: Callable[..., Result], groups: Iterable[Group]) -> Iterator[Result]:
    workers = worker_count()
    pool = ThreadPoolExecutor(workers, "shards")
    try:
        for future in _pipelined(partial(pool.submit, function), groups, _AHEAD * workers):
            yield future.result()
    finally:  # also of a reader that left early, and of Ctrl-C
        pool.shutdown(cancel_futures=True)


def worker_count() -> int:
    """One thread for each core that this process may use, as far as there is memory for them."""
    cores, free = len(os.sched_getaffinity(0)), psutil.virtual_memory().available
    return max(1, min(cores, _MAX_WORKERS, free // _WORKER_BYTES))


def _guarded(function: Callable[..., Result], shards: list[str], *arguments: Any) -> Result:
    """Call the function; what it raises is one line that names the shards."""
    try:
        return function(shards, *arguments)
    except FoundryError:  # names the file
        raise
    except Exception as error:
        names = shards[0] if len(shards) == 1 else f"{shards[0]} to {shards[-1]}"
        problem = f"{type(error).__name__}: {first_line(error)}"
        raise FoundryError(f"shard {names}: {problem}") from error
    finally:
        pa.default_memory_pool().release_unused()


def _pipelined(
    submit: Callable[..., Result], groups: Iterable[Group], ahead: int
) -> Iterator[Result]:
    """Submit the groups, some ahead of the one that is waited for."""
    remaining = iter(groups)
    pending = deque(submit(*group) for group in islice(remaining, ahead))
    while pending:
        yield pending.popleft()
        pending.extend(submit(*group) for group in islice(remaining, 1))


def _on_ray(
    function: Callable[..., Result], groups: Iterable[Group], count: int
) -> Iterator[Result]:
    """Tasks of a CPU each. A cluster without a free one is not waited for: those that hold its
    CPUs may be runs that wait for tasks of theirs."""
    import ray

    with _ray_connection():
        free = int(ray.available_resources().get("CPU", 0))
        if free < 1:
            yield from (function(*group) for group in groups)
            return
        remote = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(_ray_task)
        submit = partial(remote.remote, function)
        total = int(ray.cluster_resources().get("CPU", free))
        for reference in _pipelined(submit, groups, min(_AHEAD * total, count)):
            try:
                yield ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                raise FoundryError(first_line(error.cause)) from error
            except ray.exceptions.RayError as error:
                raise FoundryError(f"a task on the Ray cluster: {first_line(error)}") from error


def _ray_task(function: Callable[..., Result], *group: Any) -> Result:
    pa.set_cpu_count(1)
    return function(*group)


@contextmanager
def _ray_connection() -> Iterator[None]:
    """A connection to the cluster, which ends the tasks of this process with it."""
    import ray

    if ray.is_initialized():
        yield
        return
    ray.init(log_to_driver=False, logging_level=logging.WARNING)
    try:
        yield
    finally:
        ray.shutdown()
