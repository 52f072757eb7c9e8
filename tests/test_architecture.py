"""The rooms of the package, and the one-way street between them (ARCHITECTURE.md)."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent
# A room imports from those before it only.
ROOMS = ("schemas", "warehouse", "inference", "training", "assets", "dagster_project")
# Slow to import, or not installed everywhere: imported inside the function that needs them.
HEAVY = {
    "torch",
    "diffusers",
    "transformers",
    "ray",
    "matplotlib",
    "datasets",
    "gradio",
    "openai",
    "google",
}
SOURCES = sorted(PACKAGE.rglob("*.py"))
# Loaded by a trainer in its own environment, never by ours.
FOREIGN = PACKAGE / "training" / "grpo" / "plugins"


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def room_of(path: Path) -> str | None:
    first = path.relative_to(PACKAGE).parts[0]
    return first if first in ROOMS else None


def imported_by(path: Path, nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Full names of the modules that some import statements name, relative ones resolved."""
    package = ["interleave_foundry", *path.relative_to(PACKAGE).parts[:-1]]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = [*base, *(node.module.split(".") if node.module else [])]
            yield from (".".join([*module, alias.name]) for alias in node.names)


def at_module_level(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run on import: not those of functions or `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from at_module_level(node)


def modules_after(statement: str) -> set[str]:
    """Top-level modules in `sys.modules` of a fresh interpreter after a statement."""
    code = f"{statement}; import sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("source", "imported"),
    [
        ("from ..assets import nodes", "assets.core.node"),
        ("from . import errors", "schemas.errors"),
        ("from .errors import FoundryError", "schemas.errors.FoundryError"),
        ("import assets", "assets"),
        ("def f():\n    from ..assets import nodes", "assets.core.node"),
    ],
)
def test_imports_are_resolved(source, imported):
    nodes = ast.walk(ast.parse(source))
    assert list(imported_by(PACKAGE / "schemas" / "base.py", nodes)) == [imported]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_point_up_the_street(path):
    room = room_of(path)
    reachable = ROOMS[: ROOMS.index(room) + 1] if room else ROOMS
    tree = ast.parse(path.read_text("utf-8"))
    ours = [m.split(".") for m in imported_by(path, ast.walk(tree)) if m.startswith(PACKAGE.name)]
    wrong = [".".join(m) for m in ours if m[1:] and m[1] in ROOMS and m[1] not in reachable]
    assert not wrong, f"{name_of(path)} is in {room} and may not import {', '.join(wrong)}"


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if FOREIGN not in path.parents], ids=name_of
)
def test_heavy_libraries_are_imported_where_they_are_needed(path):
    tree = ast.parse(path.read_text("utf-8"))
    heavy = {m for m in imported_by(path, at_module_level(tree)) if m.split(".")[0] in HEAVY}
    assert not heavy, f"{name_of(path)} imports {', '.join(sorted(heavy))} at module level"


def test_every_module_says_what_it_is_for():
    written = {path: path.read_text("utf-8") for path in SOURCES}
    silent = [name_of(p) for p, text in written.items() if text and not _docstring(text)]
    assert not silent


def _docstring(text: str) -> str | None:
    return ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize(
    "module", ["", ".schemas", ".warehouse", ".inference.roles", ".dagster_project.cli"]
)
def test_doors_open_fast(module):
    """Neither heavy libraries nor Dagster, pandas or DuckDB come with these."""
    loaded = modules_after(f"import interleave_foundry{module}")
    assert not loaded & (HEAVY | {"dagster", "pandas", "duckdb"})


def test_the_code_location_loads_without_heavy_libraries():
    loaded = modules_after("import dagster_project.definitions")
    assert "dagster" in loaded and not loaded & HEAVY
