"""Install pinned requirements into a virtual environment: with uv, or with pip where uv fails.

Our own environment is byte-compiled when it is made: Python would do it on import, but not where
PYTHONDONTWRITEBYTECODE is set, as in most containers, and there again in every process. Those of
trainers and vLLM compile what they import, a fraction of what they have: see `environments`.

Both use the package indexes of the user's pip settings, which uv does not read by itself. The
Makefile runs this file as a script in a new environment: module-level imports are standard library.
"""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# pip's option, uv's variable, and what separates several values there.
_UV_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
# Later ones win, as with pip itself.
_SECTIONS = ("global", "install", ":env:")
# They would make an environment's Python use our packages.
_PYTHON_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
# An exact pin may be on any of several indexes, not only on the first that has the package.
_UV_OPTIONS = ("--no-config", "--index-strategy", "unsafe-best-match")


def install(folder: Path, pins: Path, log: Path, announce: Callable[[str], object]) -> str:
    """Make a virtual environment with exactly the pinned packages; returns the installer's name.

    Raises `FoundryError`: both failed; names the log.
    """
    log.unlink(missing_ok=True)
    uv, python = _find_uv(), str(folder / "bin" / "python")
    if uv:
        make = [uv, "venv", "--no-project", "--no-config", "--python", sys.executable, str(folder)]
        if run_all([make, _uv_install(uv, python, str(pins))], uv_environment(), log):
            return "uv"
    announce("uv failed; trying pip" if uv else "uv is not installed; using pip")
    shutil.rmtree(folder, ignore_errors=True)
    make = [sys.executable, "-m", "venv", str(folder)]
    options = ("--no-input", "--no-compile", "--requirement", str(pins))
    fill = [python, "-m", "pip", "install", *options]
    if run_all([make, fill], clean_variables(), log):
        return "pip"
    from schemas import FoundryError

    raise FoundryError(
        f"cannot install {pins.name}: check the network and pip's index settings (log: {log})"
    )


def install_extra(python: Path, pins: Path, installer: str, log: Path) -> None:
    """Add pinned packages to an environment, one after the other: each is built, if it has no
    wheel, with what is installed by then.

    `installer`: that made the environment: `uv` or `pip`. Raises `FoundryError`: one cannot be
    installed; names the log.
    """
    from schemas import FoundryError

    pip, variables = [str(python), "-m", "pip", "install", "--no-input"], clean_variables()
    uv = _find_uv()
    if installer == "uv" and uv:
        pip = [uv, "pip", "install", "--python", str(python), *_UV_OPTIONS]
        variables = uv_environment()
    for pin in pins.read_text("utf-8").splitlines():
        if pin.startswith("#"):
            continue
        if not run_all([[*pip, "--no-deps", "--no-build-isolation", pin]], variables, log):
            raise FoundryError(f"cannot install {pin} of {pins.name} (log: {log})")


def main(pins: str) -> None:
    """Install pinned packages into the environment of this interpreter."""
    if uv := _find_uv():
        command = [*_uv_install(uv, sys.executable, pins), "--compile-bytecode"]
        if not subprocess.call(command, env=uv_environment(), stderr=subprocess.DEVNULL):
            return
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-input", "--requirement", pins]
    sys.exit(subprocess.call([*pip, "--disable-pip-version-check"]))


def clean_variables() -> dict[str, str]:
    """This process's environment variables without those that tie it to this Python."""
    return {name: value for name, value in os.environ.items() if name not in _PYTHON_VARIABLES}


def run_all(commands: Sequence[Sequence[str]], environment: Mapping[str, str], log: Path) -> bool:
    """Run commands as far as they succeed, appending to a log; whether all did."""
    with log.open("ab") as output:
        return not any(
            subprocess.call(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )
            for command in commands
        )


def uv_variables(listing: str) -> dict[str, str]:
    """uv's variables for pip's, from the lines `section.option='value'` of `pip config list`."""
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in found:
            found[section][option] = str(ast.literal_eval(value))
    pip = {option: value for section in _SECTIONS for option, value in found[section].items()}
    return {
        variable: separator.join(pip[option].split())
        for option, (variable, separator) in _UV_VARIABLES.items()
        if pip.get(option, "").strip()
    }


def _find_uv() -> str | None:
    """The uv beside this interpreter (a requirement of ours), or one on the path."""
    beside = shutil.which("uv", path=str(Path(sys.executable).parent))
    return beside or shutil.which("uv")


def _uv_install(uv: str, python: str, pins: str) -> list[str]:
    return [uv, "pip", "install", "--python", python, *_UV_OPTIONS, "--requirement", pins]


def uv_environment() -> dict[str, str]:
    """The user's settings for uv win over those for pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True)
    return {**uv_variables("" if done.returncode else done.stdout), **clean_variables()}


if __name__ == "__main__":
    main(sys.argv[1])
