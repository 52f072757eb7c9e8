"""The rows that a trainer gets of a table: ours and imported ones, by the profile's weights."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inference.agent_prompts.templates import critic_prompt
from inference.calls.hashing import unit_interval
from schemas import FoundryError, Table
from schemas.curation import IMPORTS
from warehouse import Home, Lake

from ..settings import OURS, CurationSettings


def imported_rows(
    home: Home, settings: CurationSettings, table: str, where: Any
) -> Iterator[dict[str, Any]]:
    """Imported rows of a training set, in the columns that exports use.

    Args:
        where: about `images`, see `stored_rows`.

    Raises:
        FoundryError: an import is missing, or is of another kind.
    """
    for name, weight in _weights(settings, table).items():
        if name == OURS:
            continue
        check_import(home, name, table)
        rows = stored_rows(home.lake, IMPORTS, [name], where)
        yield from weighted((_columns(row, settings) for row in rows), weight)


def stored_rows(
    lake: Lake, table: Table, partitions: Sequence[str], where: Any = None
) -> Iterator[dict[str, Any]]:
    """Rows of some partitions in their order, few of them in memory.

    Args:
        where: a `pyarrow.compute` expression.
    """
    for name in partitions:
        for part in lake.stream(table, partition=name):
            yield from (part if where is None else part.filter(where)).to_pylist()


def imported_count(home: Home, settings: CurationSettings, table: str) -> int:
    """Imported rows that are mixed into a set, by their weights."""
    count = 0
    for name, weight in _weights(settings, table).items():
        if name != OURS and home.lake.exists(IMPORTS, name):
            rows = home.lake.read(IMPORTS, [name], ["row_id"]).to_pylist()
            count += sum(1 for _ in weighted(iter(rows), weight))
    return count


def own_weight(settings: CurationSettings, table: str) -> float:
    """The weight of the set that was made here."""
    return _weights(settings, table).get(OURS, 0.0)


def weighted(rows: Iterator[dict[str, Any]], weight: float) -> Iterator[dict[str, Any]]:
    """Every row as often as the weight says; a fraction of the rows is chosen by their ids."""
    copies, share = divmod(weight, 1)
    for row in rows:
        for _ in range(int(copies) + (unit_interval(f"mix/{row['row_id']}") < share)):
            yield row


def check_import(home: Home, name: str, table: str) -> None:
    """Raises FoundryError unless there is an import of that name, with rows of that set."""
    if not home.lake.exists(IMPORTS, name):
        known = ", ".join(home.lake.partitions(IMPORTS)) or "none yet"
        raise FoundryError(
            f"curation.exports.mix.{table}: no import {name} in {home.root}; there are: {known}; "
            "`interleave import` makes them"
        )
    [kind] = set(home.lake.read(IMPORTS, [name], ["kind"])["kind"].to_pylist())
    if kind != table:
        raise FoundryError(f"curation.exports.mix.{table}: import {name} has rows of {kind}")


def mix_hashes(home: Home, settings: CurationSettings, tables: list[str]) -> dict[str, Any]:
    """What the imports of these tables are, and how much of each: weight and content hash."""
    if settings.exports.mix is None:
        return {}
    return {
        table: {name: [weight, home.lake.content_hash(IMPORTS, name)] for name, weight in sources}
        for table, sources in _all_sources(settings, tables).items()
    }


def mix_sources(home: Home, settings: CurationSettings, tables: list[str]) -> list[str]:
    """The imports of these tables in words: name, origin, licence, rows, weight."""
    if settings.exports.mix is None:
        return []
    used = settings.exports.mix.imports()
    return [
        _in_words(home, name, weight, table)
        for table in tables
        for name, weight in used.get(table, {}).items()
    ]


def _in_words(home: Home, name: str, weight: float, table: str) -> str:
    check_import(home, name, table)
    rows = home.lake.read(IMPORTS, [name], ["source", "licence"]).to_pylist()
    about = "{source}; licence: {licence}".format(**rows[0])
    return f"{name} ({about}; {len(rows)} rows, weight {weight:g})"


def _all_sources(
    settings: CurationSettings, tables: list[str]
) -> dict[str, list[tuple[str, float]]]:
    mixed = {table: _weights(settings, table) for table in tables}
    return {table: sorted(w.items()) for table, w in mixed.items() if w != {OURS: 1}}


def _weights(settings: CurationSettings, table: str) -> Mapping[str, float]:
    return getattr(settings.exports.mix, table, None) or {OURS: 1}


def _columns(row: dict[str, Any], settings: CurationSettings) -> dict[str, Any]:
    shared = {**row, "prompt_id": None}
    if row["kind"] != "critic_rl":
        return shared
    before, after = row["images"]
    template = settings.critic.agent_prompt
    question = critic_prompt(row["origin_prompt"], row["rewritten_prompt"], template).text
    return shared | {
        "origin_image": before,
        "edited_image": after,
        "messages": [{"role": "user", "content": question}],
    }
