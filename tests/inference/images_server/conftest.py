"""Torch for CPU, before anything imports diffusers."""

from inference.backends import torch_cpu_shim

torch_cpu_shim.install()
