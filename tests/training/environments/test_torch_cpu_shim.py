"""The CPU fix for torchvision and torchaudio, in a fresh interpreter."""

import subprocess
import sys

import pytest

INSTALL = "from inference import cpu_torch; cpu_torch.install(); "


def run(code: str) -> str:
    command = [sys.executable, "-c", INSTALL + code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_torchvision_is_usable():
    code = "import torch; from torchvision.transforms.v2.functional import resize; "
    assert run(code + "print(*resize(torch.zeros(3, 8, 8), [4, 4]).shape)") == "3 4 4"


def test_installing_twice_hooks_once_and_imports_nothing():
    code = "cpu_torch.install(); import sys; names = [type(f).__name__ for f in sys.meta_path]; "
    assert run(code + "print(names.count('_Finder'), 'torch' in sys.modules)") == "1 False"


@pytest.mark.slow
def test_a_gpu_build_is_left_alone():
    code = "import torch; torch.version.cuda = '13.0'; import importlib.util as u; "
    assert run(code + "print(type(u.find_spec('torchvision').loader).__name__)") == (
        "SourceFileLoader"
    )


def test_other_modules_are_found_as_ever():
    assert run("import json.tool; print(json.tool.__name__)") == "json.tool"
