"""Components: what `dg scaffold defs` adds to the project, each a folder of `dagster_project/defs`.

An entry of the profile follows from each (`assets/core/additions.py`), and an external asset,
upstream of the assets that read it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, Self

import dagster as dg
from pydantic import BaseModel, Field

from assets.benchmarks.settings import BenchmarkRunSettings
from assets.core.additions import KINDS, Addition, PackSettings
from assets.imports.settings import ImportSettings
from schemas import FoundryError
from warehouse.atomic import atomic_write

PACK = {
    "taxonomy.yaml": """\
title: Garden
reader: sketch   # the prompts are about the sketch world; without this line: about anything
categories:
  garden:
    title: Garden
    subcategories:
      plants: {title: Plants, description: What grows., banks: [plants]}
      visitors: {title: Visitors, description: Animals that come by., banks: [animals]}
""",
    "banks/garden.yaml": """\
plants:
  entity: [red flower, yellow flower, pink flower, purple flower, blue flower, green tree]
animals:
  entity: [brown dog, black cat, yellow bird, white rabbit, orange butterfly]
things:
  entity: [yellow sun, white cloud, red house, blue house, brown box]
""",
    "templates.yaml": """\
templates:
  beside: "{entity:a} beside {things.entity:a}"
  above: "Draw {entity:a} and then {things.entity:a}"
  add: "Show {things.entity:a}, then add {entity:a}"
""",
}


class ServerParams(BaseModel):
    """The first settings of a server: by default, of the sketch world's generator."""

    kind: Literal["agents", "images"] = Field("images", description="What it serves")
    model: str = Field("sketch", description="Its model")
    gpus: int = Field(0, description="Number of GPUs; 0: it runs on the CPU")


def _scaffolder(
    options: type[BaseModel], files: Mapping[str, str] = MappingProxyType({})
) -> type[dg.Scaffolder[Any]]:
    """Writes `defs.yaml` with the settings that the command's options give, and files beside it."""

    class SettingsScaffolder(dg.Scaffolder[Any]):
        @classmethod
        def get_scaffold_params(cls) -> type[BaseModel]:
            return options

        def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
            if request.scaffold_format != "yaml":
                raise FoundryError("the profile reads YAML only: scaffold without --format")
            settings = request.params.model_dump(mode="json", exclude_none=True)
            dg.scaffold_component(request, {"settings": settings})
            for name, text in files.items():
                atomic_write(request.target_path / name, text)

    return SettingsScaffolder


class _OfProfile:
    """A component that is an entry of the profile; an asset of its own in the lineage."""

    def __init__(self, addition: Addition) -> None:
        self.addition = addition

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        return KINDS[cls.__name__].attributes

    @classmethod
    def load(cls, attributes: Any, context: dg.ComponentLoadContext) -> Self:
        settings = attributes and attributes.settings
        return cls(Addition(context.path / "defs.yaml", KINDS[cls.__name__], settings))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        spec = dg.AssetSpec(
            self.addition.asset_key,
            description=type(self).__doc__,
            group_name="components",
            kinds={"yaml"},
            metadata={"profile": {self.addition.path: self.addition.entry}},
        )
        return dg.Definitions(assets=[spec])


@dg.scaffold_with(_scaffolder(PackSettings, PACK))
class PackComponent(_OfProfile, dg.Component):
    """A prompt pack: a folder with `defs.yaml`, `taxonomy.yaml`, `banks/` and `templates.yaml`.

    Its prompts join the bank; `pack: NAME` in a profile makes trajectories of them.
    """


@dg.scaffold_with(_scaffolder(BenchmarkRunSettings))
class BenchmarkComponent(_OfProfile, dg.Component):
    """A benchmark, which `interleave evaluate` runs; the folder has its name: `wise-legacy`."""


@dg.scaffold_with(_scaffolder(ServerParams))
class ServerComponent(_OfProfile, dg.Component):
    """A model server, which endpoints of the profile name: `endpoints: [{server: NAME}]`."""


@dg.scaffold_with(_scaffolder(ImportSettings))
class ImportComponent(_OfProfile, dg.Component):
    """Training rows of other people, which are mixed into the set of their kind."""
