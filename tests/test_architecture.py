"""Rules on imports that import-linter's contracts (pyproject.toml) do not express."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("schemas", "warehouse", "inference", "training", "assets", "dagster_project")
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
# Loaded by a trainer in its own environment, never by ours.
PLUGINS = ROOT / "training" / "grpo" / "plugins"


@cache
def sources() -> dict[Path, ast.Module]:
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {path: ast.parse(path.read_text("utf-8")) for path in paths}


def runs_on_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run on import: not those of functions or `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from runs_on_import(node)


def libraries(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Top-level names of absolute imports."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def modules_after(statement: str) -> set[str]:
    """Top-level modules in `sys.modules` of a fresh interpreter after a statement."""
    code = f"{statement}; import sys; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_no_two_modules_import_each_other():
    graph = grimp.build_graph(*PACKAGES)
    pairs = {
        tuple(sorted((module, other)))
        for module in graph.modules
        for other in graph.find_modules_directly_imported_by(module)
        if module in graph.find_modules_directly_imported_by(other)
    }
    assert not pairs


def test_heavy_libraries_are_imported_where_they_are_needed():
    heavy = {}
    for path, tree in sources().items():
        found = set(libraries(runs_on_import(tree))) & HEAVY
        if found and PLUGINS not in path.parents:
            heavy[str(path.relative_to(ROOT))] = found
    assert not heavy


def test_every_module_has_a_docstring():
    missing = [
        path for path, tree in sources().items() if tree.body and not ast.get_docstring(tree)
    ]
    assert not missing


@pytest.mark.parametrize(
    "module",
    ["interleave_foundry", "schemas", "warehouse", "inference.roles", "dagster_project.cli.app"],
)
def test_light_modules_import_no_heavy_library(module):
    """Nor Dagster, pandas or DuckDB."""
    assert not modules_after(f"import {module}") & (HEAVY | {"dagster", "pandas", "duckdb"})


def test_the_code_location_loads_without_heavy_libraries():
    loaded = modules_after("import dagster_project.definitions")
    assert "dagster" in loaded and not loaded & (HEAVY | {"pandas", "sqlalchemy", "alembic"})
