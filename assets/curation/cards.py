"""Cards: content and origin of an export, for people (Markdown) and tools (JSON)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from schemas import Table
from schemas.curation import STEPS
from warehouse import Home

from ..core.metadata import markdown_section
from .duckdb_session import duckdb_session, query_counts
from .settings import CurationSettings
from .steps import theta_of

# Queries for the packs and models that the rows came from.
_SOURCES = {
    "packs": "SELECT DISTINCT pack FROM prompts",
    "planners": "SELECT DISTINCT planner FROM plans",
    "generators": "SELECT DISTINCT generator FROM attempts",
    "critics": "SELECT DISTINCT critic FROM attempts",
    "scorers": "SELECT DISTINCT scorer FROM scores",
}


@dataclass(frozen=True)
class Card:
    """Content and origin of an export. `fingerprint` is a hash of everything it depends on."""

    name: str
    title: str
    use: str
    fingerprint: str
    counts: dict[str, int]
    splits: dict[str, int]
    sources: dict[str, list[str]]
    thresholds: dict[str, Any]
    tables: dict[str, str | None]
    files: dict[str, str]

    def json(self) -> bytes:
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)

    def markdown(self) -> str:
        sources = {what: ", ".join(names) for what, names in self.sources.items()}
        parts = [
            f"# {self.title}\n\n{self.use}\n",
            markdown_section("Rows", "what", "rows", self.counts),
            markdown_section("Prompts and steps by split", "split", "count", self.splits),
            markdown_section("Sources", "what", "names", sources),
            markdown_section("Thresholds", "setting", "value", self.thresholds),
            markdown_section("Content hashes of the tables", "table", "sha256", self.tables),
            markdown_section("Hashes of the files", "file", "sha256", self.files),
        ]
        return "\n".join(parts)


def sources(home: Home) -> dict[str, list[str]]:
    """Names of the packs and models that the lake's rows came from."""
    connection = duckdb_session(home)
    return {
        name: sorted(str(row[0]) for row in connection.execute(sql).fetchall())
        for name, sql in _SOURCES.items()
    }


def agent_prompts(home: Home, tables: tuple[Table, ...]) -> list[str]:
    """Versions of the agent prompts in some tables."""
    connection = duckdb_session(home)
    versions: set[str] = set()
    for table in tables:
        if "agent_prompt_version" in table.columns:
            sql = f"SELECT DISTINCT agent_prompt_version FROM {table.name}"
            versions.update(row[0] for row in connection.execute(sql).fetchall())
    return sorted(versions)


def splits(home: Home) -> dict[str, int]:
    """Numbers of prompts and of steps, by split."""
    connection = duckdb_session(home)
    prompts = "SELECT 'prompts: ' || split, count(*) FROM prompts GROUP BY 1 ORDER BY 1"
    steps = (
        "SELECT 'steps: ' || coalesce(split, drop_reason, 'unused'), count(*) "
        "FROM steps GROUP BY 1 ORDER BY 1"
    )
    return query_counts(connection, prompts) | query_counts(connection, steps)


def thresholds(home: Home, settings: CurationSettings) -> dict[str, Any]:
    """Every threshold by its dotted name, and the resulting theta."""
    values = settings.model_dump(mode="json", exclude={"exports": True, "planner": {"comm"}})
    return {"theta": theta_of(home.lake.read(STEPS), settings.split), **_flatten(values)}


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
