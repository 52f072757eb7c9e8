"""What draws for a row of `critic_rl`, where a profile names several generators for rewards, and
from which images, where it gives generators all of a trajectory (`loop.conditioning: all`)."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from inference.calls.hashing import stable_hash
from inference.roles import Generator, qualified_name
from warehouse import Home
from warehouse.atomic import atomic_write
from warehouse.sql import verify_referenced
from warehouse.views import connect

ASSIGNED = "generators.json"  # in the job's folder
_DREW = """
    SELECT row_id, generator
    FROM critic_rl JOIN attempts USING (trajectory_id, step_number, iteration)
"""

_IMAGES_SO_FAR = """
    SELECT id, list_concat(
        input_images,
        (SELECT coalesce(list(earlier.image ORDER BY earlier.step_number), [])
         FROM attempts earlier
         WHERE earlier.trajectory_id = judged.trajectory_id AND earlier.chosen
           AND earlier.step_number < judged.step_number)
    )
    FROM (SELECT concat_ws('/', trajectory_id, step_number, iteration) AS id, * FROM attempts)
         AS judged JOIN prompts USING (prompt_id)
"""


def generators_of_rows(
    generators: Sequence[Generator], rows: Iterable[str], seed: int, home: Home, folder: Path
) -> Callable[[str], Generator]:
    """The generator of a row's id: one for a row, so that the rollouts of a group are comparable.

    Args:
        rows: ids of all rows that are trained on.
        seed: of the choice among several.
        home: its lake says which generator drew the picture that a row judges.
        folder: the job's; with several generators it keeps the choice, which a resumed run repeats
            whatever the lake holds by then.
    """
    if len(generators) == 1:
        return lambda _row: generators[0]
    by_name = {qualified_name(generator): generator for generator in generators}
    path = folder / ASSIGNED
    names = assign_generators(list(by_name), rows, seed, _drew(home))
    if path.is_file():
        names |= json.loads(path.read_text("utf-8"))
    atomic_write(path, json.dumps(names, indent=1))
    return lambda row: by_name[names[row]]


def assign_generators(
    names: Sequence[str], rows: Iterable[str], seed: int, drew: Mapping[str, str]
) -> dict[str, str]:
    """Row -> who drew its picture, where that is among `names`; else one by a hash."""
    return {
        row: drew[row] if drew.get(row) in names else names[_number(seed, row) % len(names)]
        for row in rows
    }


def images_so_far(home: Home, attempts: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Attempt -> sha256 of its trajectory's images before its step, input images included.

    Args:
        attempts: as `trajectory/step/iteration`; those of other lakes are left out.
    """
    verify_referenced(home, _IMAGES_SO_FAR)
    with closing(connect(home)) as connection:
        sql = f"{_IMAGES_SO_FAR} WHERE id IN (SELECT unnest($1))"
        rows = connection.execute(sql, [list(attempts)]).fetchall()
    return {attempt: tuple(images) for attempt, images in rows}


def _number(seed: int, row: str) -> int:
    return int(stable_hash("generator", seed, row), 16)


def _drew(home: Home) -> dict[str, str]:
    """Row of `critic_rl` -> generator of the picture that it judges."""
    verify_referenced(home, _DREW)
    with closing(connect(home)) as connection:
        return dict(connection.sql(_DREW).fetchall())
