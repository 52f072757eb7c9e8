"""Time and memory of curating a million and four million attempts, and a query over the first.

The trajectories are synthetic: DuckDB makes them from hashes, with texts as long as in a real run.
`python -m bench.curation 4000` measures any number of shards: 4,000 are ten million attempts.
How far more workers would speed it up is counted, not timed: from the CPU of every group of shards
and of the thread that writes their rows, which works beside them.
"""

import heapq
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import psutil

from assets.core import shard_map
from assets.curation.critic_sets import build_critic_rl, build_critic_sft
from assets.curation.planner_sets import build_planner_sft
from assets.curation.sequences import build_sequences
from assets.curation.settings import CriticSettings, CurationSettings
from assets.curation.steps import build_steps
from schemas import Table
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT, SEQUENCES, STEPS
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, PLANS, SCORES, TRAJECTORIES
from warehouse import Home
from warehouse.views import connect

WORKERS = (2, 4, 8)
MEANING = {
    "curation_attempts": ("synthetic attempts that are curated", "about 1,000,000"),
    "curation_seconds": ("scores -> steps -> the four data sets, written", "<= 120"),
    "curation_cpu_seconds": ("user and system time of all processes that do", "<= 40"),
    "curation_peak_gb": ("peak memory (VmHWM) of all of them together", "<= 2"),
    "curation_rows": ("rows of the data sets", ""),
    "curation_4m_cpu_seconds": ("the same for four times as many attempts", "<= 160"),
    "curation_4m_peak_gb": ("the same for four times as many attempts", "<= 2"),
    **{
        f"curation_speedup_{workers}": (
            f"of {workers} workers, each with a core, relative to one; counted from CPU times",
            "",
        )
        for workers in WORKERS
    },
    "million_attempts_query_seconds": ("grouped query over all attempts", "< 1"),
}

SHARDS, SHARD_SIZE = 400, 100
_BLOCK = 100  # shards that are synthesized at a time
_SAMPLED_SECONDS = 0.5
_ASSETS = (
    (STEPS, build_steps),
    (CRITIC_SFT, build_critic_sft),
    (CRITIC_RL, build_critic_rl),
    (PLANNER_SFT, build_planner_sft),
    (SEQUENCES, build_sequences),
)
_QUERY = """
SELECT iteration, accepted, generator, count(*) AS attempts, avg(generator_seconds) AS seconds
FROM attempts GROUP BY ALL ORDER BY ALL
"""


def measure() -> dict[str, float]:
    """One and four million attempts, and the query."""
    one, four = _measure(SHARDS, query=True), _measure(4 * SHARDS)
    names = ("cpu_seconds", "peak_gb")
    return one | {f"curation_4m_{name}": four[f"curation_{name}"] for name in names}


def _measure(shards: int, query: bool = False) -> dict[str, float]:
    """Create the trajectories in a temporary folder, and curate them in a fresh process."""
    folder = Path(tempfile.mkdtemp(prefix="interleave-bench-"))
    try:
        synthesize(Home(folder), shards)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as fresh:
            curated = fresh.submit(_curate, folder).result()
        if not query:
            return curated
        return (
            curated | _speedups(folder) | {"million_attempts_query_seconds": _query_seconds(folder)}
        )
    finally:
        shutil.rmtree(folder)


def _curate(folder: Path) -> dict[str, float]:
    home, memory = Home(folder), _PeakMemory()
    settings = CurationSettings(critic=CriticSettings(canvas_size=96))
    rows, started, cpu = 0, time.perf_counter(), _cpu_seconds()
    for table, build in _ASSETS:
        before, cpu_before = time.perf_counter(), _cpu_seconds()
        written = home.lake.write(table, build(home, settings)[0])
        rows += written.rows if table is not STEPS else 0
        spent = f"{time.perf_counter() - before:.1f} s, CPU {_cpu_seconds() - cpu_before:.1f} s"
        print(f"{table.name}: {written.rows:,} rows in {spent}; {memory.peak / 1e9:.2f} GB so far")
    return {
        "curation_attempts": home.lake.rows(ATTEMPTS),
        "curation_seconds": time.perf_counter() - started,
        "curation_cpu_seconds": _cpu_seconds() - cpu,
        "curation_peak_gb": memory.peak / 1e9,
        "curation_rows": rows,
    }


def _speedups(folder: Path) -> dict[str, float]:
    """By set, the longer of what the writing thread and the busiest of so many workers take."""
    home, settings = Home(folder), CurationSettings(critic=CriticSettings(canvas_size=96))
    seconds = dict.fromkeys((1, *WORKERS), 0.0)
    for table, build in _ASSETS:
        passes: list[list[float]] = []
        home.lake.delete(table, "all")
        started = time.process_time()
        with patch.object(shard_map, "_in_threads", partial(_counted, passes)):
            home.lake.write(table, build(home, settings)[0])
        writing = time.process_time() - started - sum(map(sum, passes))
        for workers in seconds:
            working = sum(_makespan(groups, workers) for groups in passes)
            seconds[workers] += max(writing, working)
    return {f"curation_speedup_{n}": seconds[1] / seconds[n] for n in WORKERS}


def _counted(
    passes: list[list[float]], function: Callable[..., Any], groups: Iterable[tuple[Any, ...]]
) -> Iterator[Any]:
    """The groups one after the other in this thread; notes the CPU of each."""
    seconds: list[float] = []
    passes.append(seconds)
    for group in groups:
        started = time.process_time()
        result = function(*group)
        seconds.append(time.process_time() - started)
        yield result


def _makespan(seconds: list[float], workers: int) -> float:
    """Time until all are done, each begun by the first worker that is free."""
    busy = [0.0] * workers
    for each in seconds:
        heapq.heapreplace(busy, busy[0] + each)
    return max(busy)


def _cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


class _PeakMemory:
    """The largest sum of the peaks (VmHWM) of this process and its children at a time, in bytes.

    `ru_maxrss` would count the peak of the process that started this one.
    """

    def __init__(self) -> None:
        self.peak = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        this = psutil.Process()
        while True:
            now = sum(_high_water(each.pid) for each in (this, *this.children(recursive=True)))
            self.peak = max(self.peak, now)
            time.sleep(_SAMPLED_SECONDS)


def _high_water(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _query_seconds(folder: Path) -> float:
    """The best of three runs with connection; the first one reads from disk."""
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        connect(Home(folder)).execute(_QUERY).fetchall()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def synthesize(home: Home, shards: int) -> None:
    """Fill a lake with prompts, plans, trajectories, attempts and scores of `shards` shards."""
    for first in range(0, shards, _BLOCK):
        last = min(first + _BLOCK, shards)
        with duckdb.connect() as connection:
            connection.execute(f"SET threads = {os.cpu_count()}")
            for name, sql in _TABLES_SQL.items():
                prompts = sql.format(first=first * SHARD_SIZE, last=last * SHARD_SIZE)
                connection.execute(f"CREATE TABLE {name} AS {prompts}")
            for table in (PROMPTS, PLANS, TRAJECTORIES, ATTEMPTS, SCORES):
                _write_shards(home, connection, table)


def _write_shards(home: Home, connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    columns, order = ", ".join(table.columns), ", ".join(("shard", *table.key))
    rows = connection.sql(f"SELECT {columns} FROM {table.name} ORDER BY {order}").to_arrow_table()
    counted = f"SELECT shard, count(*) FROM {table.name} GROUP BY shard ORDER BY shard"
    start = 0
    for shard, count in connection.sql(counted).fetchall():
        home.lake.write(table, rows.slice(start, count), shard)
        start += count


def _fraction(*columns: str) -> str:
    """SQL for a number in [0, 1) that depends on some columns alone."""
    return f"(hash({', '.join(columns)}) % 1000003 / 1000003.0)"


def _sha(*columns: str) -> str:
    return f"md5(concat_ws('/', {', '.join(columns)})) || md5(concat_ws('-', {', '.join(columns)}))"


# A step takes 1 to 5 attempts; scores rise, noisily, and the last one is mostly accepted.
_TABLES_SQL = {
    "prompts": f"""
        SELECT 'bench-' || n AS prompt_id, 'bench' AS pack, 'art' AS category,
               'sub-' || n % 75 AS subcategory, 'template-' || n % 100 AS template_id,
               'Show how to build thing number ' || n || ' step by step' AS text,
               ['build', 'thing ' || n] AS terms, NULL::VARCHAR AS suffix,
               []::VARCHAR[] AS input_images, NULL::VARCHAR[] AS input_image_texts,
               printf('bench-%04d', n // {SHARD_SIZE}) AS shard,
               CASE WHEN n % 20 = 0 THEN 'heldout' ELSE 'train' END AS split,
               5 + (hash(n, 'steps') % 6)::BIGINT AS length
        FROM range({{first}}, {{last}}) numbers(n)
    """,
    "plans": """
        SELECT prompt_id, prompt_id || '-plan' AS plan_id, shard, 'bench planner' AS planner,
               'First the ground, then what stands on it. ' || repeat(text || '. ', 3) AS reasoning,
               step_number, 'Part ' || step_number AS step_name,
               'In this step we add part ' || step_number || ' of ' || prompt_id AS instruction,
               'Add part ' || step_number || ' of ' || prompt_id
               || ' at the middle left, in dark red, and keep everything else unchanged' AS prompt,
               CASE WHEN hash(prompt_id, step_number) % 3 = 0 THEN 'A caption' END AS auxiliary_text
        FROM prompts, LATERAL (SELECT unnest(range(1, length + 1)) AS step_number)
    """,
    "planned_attempts": f"""
        SELECT prompt_id, prompt_id || '-run' AS trajectory_id, shard, step_number, iteration,
               prompt AS goal, total, iteration + 1 = total AS final,
               total = 5 AND hash(plan_id) % 10 = 0 AS failed,
               least(10, greatest(0, 3 + 5 * (iteration + 1) / total
                   + 4 * {_fraction("prompt_id", "step_number", "iteration")} - 2)) AS overall
        FROM (SELECT *, least(5, 1 + hash(plan_id, step_number) % 6)::BIGINT AS total FROM plans),
             LATERAL (SELECT unnest(range(total)) AS iteration)
    """,
    "attempts": f"""
        SELECT trajectory_id, prompt_id, shard, step_number, iteration,
               CASE WHEN iteration = 0 THEN goal
                    ELSE 'Try ' || iteration || ': ' || goal END AS prompt,
               CASE WHEN step_number > 1 THEN {_sha("prompt_id", "step_number - 1", "'done'")} END
                   AS source_image,
               {
        _sha("prompt_id", "step_number", "CASE WHEN final THEN 'done' ELSE iteration::VARCHAR END")
    }
                   AS image,
               iteration AS seed, final AND NOT failed AS accepted,
               final AS chosen,
               CASE WHEN final AND NOT failed THEN ''
                    ELSE 'Try ' || (iteration + 1) || ': ' || goal END AS refined_prompt,
               'I compare the pictures cell by cell. ' || repeat(goal || ' ', 2) AS reasoning,
               'bench generator ' || hash(prompt_id) % 2 AS generator, 'bench critic' AS critic,
               overall / 10 AS generator_seconds, 0.2 AS critic_seconds
        FROM planned_attempts
    """,
    "scores": """
        SELECT trajectory_id, prompt_id, shard, step_number, iteration, overall AS edit_success,
               10.0 AS over_edit, overall AS naturalness, 10.0 AS artifacts, overall AS semantics,
               overall AS quality, overall, 'bench scorer' AS scorer,
               NULL::VARCHAR AS calls
        FROM planned_attempts
    """,
    "trajectories": """
        SELECT any_value(trajectory_id) AS trajectory_id, prompt_id,
               prompt_id || '-plan' AS plan_id, any_value(shard) AS shard,
               CASE WHEN bool_or(failed) THEN 'exhausted' ELSE 'complete' END AS status,
               'last' AS on_exhausted, 5 AS t_max, max(step_number) AS steps, count(*) AS attempts,
               NULL::VARCHAR AS error
        FROM planned_attempts GROUP BY prompt_id
    """,
}


if __name__ == "__main__":
    results = _measure(int(sys.argv[1])) if len(sys.argv) > 1 else measure()
    for name, value in results.items():
        print(f"{name}: {value:,.3g}")
