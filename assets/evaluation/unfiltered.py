"""The critic's data as they would be without the filter: an export of its own, for the ablation."""

from functools import cached_property
from pathlib import Path

from schemas.curation import CRITIC_SFT, STEPS
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, PLANS, SCORES, TRAJECTORIES
from warehouse import Home, ImageStore

from ..checkpoints.recipes import DataSet
from ..curation.critic_sets import build_critic_sft
from ..curation.exports import export_all
from ..curation.settings import CurationSettings
from ..curation.steps import build_steps

_SOURCES = (PROMPTS, PLANS, TRAJECTORIES, ATTEMPTS, SCORES)


class OverlayHome(Home):
    """A home with a lake and exports of its own, and the pictures of another."""

    def __init__(self, root: Path, main: Home) -> None:
        super().__init__(root)
        self._main = main

    @cached_property
    def images(self) -> ImageStore:
        return self._main.images


def unfiltered_critic_data(home: Home, settings: CurationSettings) -> DataSet:
    """Critic SFT samples of all steps, whatever became of them, exported for LLaMA-Factory.

    Everything but the filter is as in the profile: verdicts, balance, agent prompts.

    Raises:
        FoundryError: the export cannot be written.
    """
    annex = OverlayHome(home.local / "ablation" / "unfiltered", home)
    loose = _without_filter(settings)
    _copy_sources(home, annex)
    annex.lake.write(STEPS, build_steps(annex, loose)[0])
    annex.lake.write(CRITIC_SFT, build_critic_sft(annex, loose)[0])
    export_all(annex, loose)
    contents = {CRITIC_SFT.name: annex.lake.content_hash(CRITIC_SFT)}
    return DataSet(annex.exports / "llamafactory", contents, annex.lake.rows(CRITIC_SFT))


def _without_filter(settings: CurationSettings) -> CurationSettings:
    return settings.model_copy(
        update={
            "filter": settings.filter.model_copy(update={"rules": ()}),
            "exports": settings.exports.model_copy(update={"formats": ("llamafactory",)}),
        }
    )


def _copy_sources(home: Home, annex: Home) -> None:
    """What steps are built from; partitions that are there already are left alone."""
    for table in _SOURCES:
        for partition in home.lake.partitions(table):
            if home.lake.content_hash(table, partition) != annex.lake.content_hash(
                table, partition
            ):
                annex.lake.write(table, home.lake.read(table, [partition]), partition)
