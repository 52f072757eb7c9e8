"""Tiny pipelines of the real classes, each built once."""

import pytest

from inference.backends import torch_cpu_shim

torch_cpu_shim.install()  # before anything imports diffusers


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory):
    """Class of a pipeline -> the folder of a tiny one."""
    from tests.inference.backends.diffusers import tiny

    folders = {}

    def folder(pipeline):
        if pipeline not in folders:
            folders[pipeline] = tiny.build(pipeline, tmp_path_factory.mktemp("pipelines") / "tiny")
        return folders[pipeline]

    return folder
