"""The shim for torchvision and torchaudio beside a CPU build of torch, in a fresh interpreter."""

import subprocess
import sys

import pytest

INSTALL = "from inference.backends import torch_cpu_shim; torch_cpu_shim.install(); "


def run(code: str) -> str:
    command = [sys.executable, "-c", INSTALL + code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_torchvision_is_usable():
    code = "import torch; from torchvision.transforms.v2.functional import resize; "
    assert run(code + "print(*resize(torch.zeros(3, 8, 8), [4, 4]).shape)") == "3 4 4"


def test_installing_twice_hooks_once_and_imports_nothing():
    code = (
        "torch_cpu_shim.install(); import sys; names = [type(f).__name__ for f in sys.meta_path]; "
    )
    assert run(code + "print(names.count('_Finder'), 'torch' in sys.modules)") == "1 False"


@pytest.mark.slow
def test_does_nothing_beside_a_gpu_build():
    code = "import torch; torch.version.cuda = '13.0'; import importlib.util as u; "
    assert run(code + "print(type(u.find_spec('torchvision').loader).__name__)") == (
        "SourceFileLoader"
    )
