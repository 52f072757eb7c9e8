"""Tiny pipelines of the real classes, each made once."""

import pytest

from interleave_foundry.inference import cpu_torch

cpu_torch.install()  # before anything imports diffusers


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory):
    """The folder of a class's tiny pipeline."""
    import tiny

    made = {}

    def folder(pipeline):
        if pipeline not in made:
            made[pipeline] = tiny.build(pipeline, tmp_path_factory.mktemp("pipelines") / "tiny")
        return made[pipeline]

    return folder
