"""Tiny pipelines of the real classes, each made once."""

import pytest

from inference.backends import torch_cpu_shim

torch_cpu_shim.install()  # before anything imports diffusers


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory):
    """The folder of a class's tiny pipeline."""
    from tests.inference.backends.diffusers import tiny

    made = {}

    def folder(pipeline):
        if pipeline not in made:
            made[pipeline] = tiny.build(pipeline, tmp_path_factory.mktemp("pipelines") / "tiny")
        return made[pipeline]

    return folder
