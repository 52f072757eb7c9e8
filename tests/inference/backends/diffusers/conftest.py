"""Tiny pipelines of the real classes, each built once."""

from typing import Any

import pytest

from inference.backends import torch_cpu_shim

torch_cpu_shim.install()  # before anything imports diffusers


@pytest.fixture(scope="session")
def pipelines(tmp_path_factory):
    """Class of a pipeline -> the folder of a tiny one."""
    from inference.backends.diffusers import tiny

    folders = {}

    def folder(pipeline):
        if pipeline not in folders:
            folders[pipeline] = tiny.build(pipeline, tmp_path_factory.mktemp("pipelines") / "tiny")
        return folders[pipeline]

    return folder


def shrink_megapixels(monkeypatch: Any) -> None:
    """Make editing pipelines scale images to 64x64 pixels instead of their fixed 1024x1024."""
    from diffusers.pipelines.flux import pipeline_flux_kontext as kontext
    from diffusers.pipelines.longcat_image import pipeline_longcat_image_edit as longcat
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit as edit
    from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit_plus as edit_plus

    for module in (edit, edit_plus, longcat):
        original = module.calculate_dimensions
        small = lambda _, ratio, original=original: original(64 * 64, ratio)  # noqa: E731
        monkeypatch.setattr(module, "calculate_dimensions", small)
    monkeypatch.setattr(kontext, "PREFERRED_KONTEXT_RESOLUTIONS", [(64, 64)])
