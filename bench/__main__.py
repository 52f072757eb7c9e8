"""`make bench` runs every benchmark in its own process, prints and stores the numbers; `python -m
bench NAME` some of them.

Writes `bench.json` (name -> value; numbers of modules that are not measured now stay) and, once all
are known, the table of `docs/benchmarks.md`. Nothing is asserted: numbers are to be compared on one
machine.
"""

import importlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

MODULES = (
    "engine",
    "speculation",
    "service",
    "hostile_clients",
    "prompts",
    "lineage",
    "curation",
    "rewards",
    "providers",
    "peers",
    "images_server",
    "training",
    "judging",
    "image_packs",
    "scale",
)
DOCUMENT, VALUES = Path("docs/benchmarks.md"), Path("bench.json")


def main() -> None:
    """Run the modules named on the command line, or all."""
    names = sys.argv[1:] or list(MODULES)
    console = Console()
    values: dict[str, float] = {}
    for name in names:
        console.print(f"[dim]measuring {name} ...")
        values |= _measure(name)
    _print(console, values)
    known = _load_values() | values
    VALUES.write_text(json.dumps(known, indent=2) + "\n", "utf-8")
    if set(_meanings()) <= set(known):
        DOCUMENT.write_text(_document(known), "utf-8")


def _load_values() -> dict[str, float]:
    """Numbers of earlier runs whose names are still in use."""
    stored = json.loads(VALUES.read_text("utf-8")) if VALUES.exists() else {}
    return {name: stored[name] for name in _meanings() if name in stored}


def _measure(name: str) -> dict[str, float]:
    code = f"import json, bench.{name} as m; print(); print(json.dumps(m.measure()))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _meanings() -> dict[str, tuple[str, str]]:
    modules = [importlib.import_module(f"bench.{name}") for name in MODULES]
    return {key: meaning for module in modules for key, meaning in module.MEANING.items()}


def _print(console: Console, values: dict[str, float]) -> None:
    meanings = _meanings()
    grid = Table("measure", "value", "wanted", "what it is", box=None, header_style="bold")
    for name, value in values.items():
        what, target = meanings.get(name, ("", ""))
        grid.add_row(name, f"{value:,.3g}" if value < 1000 else f"{value:,.0f}", target, what)
    console.print(grid)


def _document(values: dict[str, float]) -> str:
    meanings = _meanings()
    rows = [
        f"| `{name}` | {values[name]:,.4g} | {target} | {what} |"
        for name, (what, target) in meanings.items()
    ]
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    return "\n".join(
        [
            "# Benchmarks",
            "",
            f"Written by `make bench` ({machine}); the same numbers are in `bench.json`.",
            "",
            "| measure | value | wanted | what it is |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    main()
