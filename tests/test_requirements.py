"""The pinned files hold everything that the package and its tests ask for."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def named(line: str) -> str:
    return re.match(r"[A-Za-z0-9._-]+", line)[0].lower().replace("_", "-").replace(".", "-")


def listed(file: str) -> list[str]:
    lines = (ROOT / "requirements" / file).read_text().splitlines()
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


def test_every_dependency_of_the_package_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["s3"]]
    assert {named(line) for line in wanted} <= {named(line) for line in listed("core.txt")}


def test_every_package_of_a_cluster_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"]["cluster"]
    assert {named(line) for line in wanted} <= {named(line) for line in listed("cluster.txt")}


@pytest.mark.parametrize("name", ["core", "cluster", "dev"])
def test_the_closure_pins_what_is_asked_for_and_nothing_else_than_versions(name):
    pinned = listed(f"{name}.txt")
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^=\s]+", line) for line in pinned)
    pins = {named(line): line.split("==")[1] for line in pinned}
    for line in listed(f"{name}.in"):
        assert pins[named(line)] == line.split("==")[1]


def test_nothing_is_pinned_twice():
    names = [named(line) for name in ("core", "cluster", "dev") for line in listed(f"{name}.txt")]
    assert len(names) == len(set(names))
