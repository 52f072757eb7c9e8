"""Checkpoints of the table `checkpoints`, and the folders of references to them."""

from pathlib import Path

from schemas.training import CHECKPOINTS, CheckpointRow
from warehouse import Home

from .manifest import AgentRole, CheckpointError

PROMOTED = "promoted"

# The checkpoints of a role, the one trained last in the pipeline first.
_NAMES_BY_ROLE: dict[AgentRole, tuple[str, ...]] = {
    "planner": ("planner_sft_checkpoint",),
    "critic": ("critic_rl_checkpoint", "critic_sft_checkpoint"),
}


def checkpoint_rows(home: Home, name: str | None = None) -> list[CheckpointRow]:
    """All checkpoints, or those of a name, oldest first."""
    rows = map(CheckpointRow.model_validate, home.lake.read(CHECKPOINTS).to_pylist())
    selected = [row for row in rows if name in (None, row.name)]
    return sorted(selected, key=lambda row: (row.created_at, row.version))


def find_checkpoint(name: str, version: str, home: Home) -> CheckpointRow:
    """The checkpoint of a name and version.

    Raises:
        CheckpointError: there is none.
    """
    rows = checkpoint_rows(home)
    for row in rows:
        if (row.name, row.version) == (name, version):
            return row
    known = ", ".join(map(_reference, rows)) or "none yet"
    raise CheckpointError(f"no checkpoint {name}@{version} in {home.root}; there are: {known}")


def resolve(reference: str, role: AgentRole, home: Home) -> Path:
    """The folder of `promoted`, of `name@version`, or of a path.

    Raises:
        CheckpointError: none was promoted yet, or there is none of that name and version.
    """
    if reference == PROMOTED:
        reference = _require_promoted(role, home)
    name, at, version = reference.rpartition("@")
    if at and "/" not in reference:
        return home.local / find_checkpoint(name, version, home).uri
    return Path(reference).expanduser()


def promoted(role: AgentRole, home: Home) -> str | None:
    """`name@version` of the promoted checkpoint of a role; None: there is none."""
    in_use = {row.name: row for row in checkpoint_rows(home) if row.status == "promoted"}
    names = (name for name in _NAMES_BY_ROLE[role] if name in in_use)
    return next((_reference(in_use[name]) for name in names), None)


def newest(name: str, home: Home) -> str | None:
    """`name@version` of the promoted version, else of the newest; None: there is none."""
    rows = checkpoint_rows(home, name)
    rows.sort(key=lambda row: row.status == "promoted")
    return _reference(rows[-1]) if rows else None


def _require_promoted(role: AgentRole, home: Home) -> str:
    if reference := promoted(role, home):
        return reference
    raise CheckpointError(
        f"no {role} was promoted yet in {home.root}; train one with `interleave run`, or promote "
        "one that `interleave checkpoints` lists: `interleave promote NAME VERSION`"
    )


def _reference(row: CheckpointRow) -> str:
    return f"{row.name}@{row.version}"
