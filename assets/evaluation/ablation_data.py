"""Training rows of the ablation alone: exports of overlays, which leave the lake unchanged."""

import pyarrow as pa
import pyarrow.compute as pc

from schemas.curation import CRITIC_SFT, STEPS
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, PLANS, SCORES, TRAJECTORIES
from warehouse import Home

from ..checkpoints.recipes import DataSet, exported_data
from ..curation.critic_sets import build_critic_sft
from ..curation.exports.publisher import export_all
from ..curation.settings import BalanceSettings, CurationSettings
from ..curation.steps import build_steps

SOURCES = (PROMPTS, PLANS, TRAJECTORIES, ATTEMPTS, SCORES)
_ALL_ROWS = BalanceSettings(mode="none")


def unfiltered_critic_data(home: Home, settings: CurationSettings) -> DataSet:
    """The critic's SFT set without curation, for LLaMA-Factory.

    No filter rule drops a step, no chain is cut after its best attempt, no verdict that the scores
    contradict is dropped, nothing is balanced. Left out are only attempts without a score, and
    rejections without a new prompt, which have no answer. The split into SFT and RL stays.

    Raises FoundryError where the export cannot be written, as the other function does.
    """
    verdicts = settings.critic.verdicts.model_copy(
        update={"sft": "critic", "unproven_rewrites": True}
    )
    unfiltered = settings.model_copy(
        update={
            "filter": settings.filter.model_copy(update={"rules": ()}),
            "critic": settings.critic.model_copy(
                update={"verdicts": verdicts, "balance_sft": _ALL_ROWS}
            ),
        }
    )
    steps = build_steps(home, unfiltered)[0].read_all()
    last = pc.subtract(steps["iterations"], 1)
    uncut = steps.set_column(*_column(steps, "best_iteration"), last)
    return _overlay_data(home, "unfiltered", unfiltered, uncut)


def rl_label_data(home: Home, settings: CurationSettings) -> DataSet:
    """The rows of the critic's RL set as SFT samples, labelled by the true verdict of the scores.

    The teacher's reasoning and new prompt are learned where it agrees with the label.
    """
    verdicts = settings.critic.verdicts.model_copy(update={"sft": "scores"})
    critic = settings.critic.model_copy(
        update={"verdicts": verdicts, "balance_sft": settings.critic.balance_rl}
    )
    labelled = settings.model_copy(update={"critic": critic})
    steps = build_steps(home, settings)[0].read_all()
    is_rl = pc.equal(steps["split"], "rl")
    sides = pc.if_else(is_rl, pa.scalar("sft"), pa.scalar(None, pa.string()))
    as_sft = steps.set_column(*_column(steps, "split"), sides)
    return _overlay_data(home, "rl_labels", labelled, as_sft)


def _overlay_data(home: Home, name: str, settings: CurationSettings, steps: pa.Table) -> DataSet:
    """The critic's SFT set of these steps, exported in a home of its own in the local folder."""
    exports = settings.exports.model_copy(update={"formats": ("llamafactory",), "mix": None})
    settings = settings.model_copy(update={"exports": exports})
    overlay = Home(home.local / "ablation" / name)
    overlay.images = home.images  # only the lake and the exports are its own
    _copy_sources(home, overlay)
    overlay.lake.write(STEPS, steps)
    overlay.lake.write(CRITIC_SFT, build_critic_sft(overlay, settings)[0])
    export_all(overlay, settings)
    return exported_data(overlay, settings, "llamafactory", CRITIC_SFT)


def _copy_sources(home: Home, overlay: Home) -> None:
    """Copy the tables that steps are built from; equal partitions are skipped."""
    for table in SOURCES:
        for partition in home.lake.partitions(table):
            content_hash = home.lake.content_hash(table, partition)
            if content_hash != overlay.lake.content_hash(table, partition):
                overlay.lake.write(table, home.lake.read(table, [partition]), partition)


def _column(table: pa.Table, name: str) -> tuple[int, pa.Field]:
    return table.schema.get_field_index(name), table.schema.field(name)
