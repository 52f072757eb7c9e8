"""From a profile's word for a checkpoint to its folder."""

from pathlib import Path

from schemas.training import CHECKPOINTS, CheckpointRow
from warehouse import Home

from .manifest import AgentRole, CheckpointError

PROMOTED = "promoted"

# Which promoted checkpoint plays a role: the furthest trained first.
_PLAYERS: dict[AgentRole, tuple[str, ...]] = {
    "planner": ("planner_sft_checkpoint",),
    "critic": ("critic_rl_checkpoint", "critic_sft_checkpoint"),
}


def resolve(reference: str, role: AgentRole, home: Home) -> Path:
    """The folder of `promoted`, of `name@version`, or of a path.

    Raises:
        CheckpointError: none was promoted yet, or there is none of that name and version.
    """
    if reference == PROMOTED:
        return _folder(_promoted(role, home), home)
    name, at, version = reference.rpartition("@")
    if at and "/" not in reference:
        return _folder(_named(name, version, home), home)
    return Path(reference).expanduser()


def promoted(role: AgentRole, home: Home) -> str | None:
    """`name@version` of what is in use for a role; None before anything was promoted."""
    in_use = {row.name: row for row in _rows(home) if row.status == "promoted"}
    return next((_reference(in_use[name]) for name in _PLAYERS[role] if name in in_use), None)


def newest(name: str, home: Home) -> str | None:
    """`name@version` of the version in use, else of the newest; None: there is none."""
    rows = [row for row in _rows(home) if row.name == name]
    rows.sort(key=lambda row: (row.status == "promoted", row.created_at))
    return _reference(rows[-1]) if rows else None


def _promoted(role: AgentRole, home: Home) -> CheckpointRow:
    if reference := promoted(role, home):
        name, _, version = reference.partition("@")
        return _named(name, version, home)
    raise CheckpointError(
        f"no {role} was promoted yet in {home.root}; train one with `interleave run`, or put one "
        "in use that `interleave checkpoints` lists: `interleave promote NAME VERSION`"
    )


def _named(name: str, version: str, home: Home) -> CheckpointRow:
    rows = _rows(home)
    for row in rows:
        if (row.name, row.version) == (name, version):
            return row
    known = ", ".join(f"{row.name}@{row.version}" for row in rows) or "none yet"
    raise CheckpointError(f"no checkpoint {name}@{version} in {home.root}; there are: {known}")


def _rows(home: Home) -> list[CheckpointRow]:
    stored = home.lake.read(CHECKPOINTS).to_pylist()
    return [CheckpointRow.model_validate(row) for row in stored]


def _reference(row: CheckpointRow) -> str:
    return f"{row.name}@{row.version}"


def _folder(row: CheckpointRow, home: Home) -> Path:
    return home.local / row.uri
