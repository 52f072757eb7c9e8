"""Builds a small lake of trajectories from a chain of (score, accepted) per step."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa
from PIL import Image

from assets.curation.critic_sets import build_critic_rl, build_critic_sft
from assets.curation.planner_sets import build_planner_sft
from assets.curation.preference_pairs import build_critic_dpo
from assets.curation.sequences import build_sequences
from assets.curation.settings import CurationSettings
from assets.curation.steps import build_steps
from assets.prompts.rounds import RoundPlan
from schemas import Row, Table
from schemas.curation import (
    CRITIC_DPO,
    CRITIC_RL,
    CRITIC_SFT,
    PLANNER_SFT,
    SEQUENCES,
    STEPS,
    ImportedRow,
)
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, PLANS, SCORES, TRAJECTORIES
from warehouse import EncodedImage, Home

Chain = list[tuple[float, bool]]
TEXT_ONLY: Chain = []
AS_IS = {"balance_sft": {"mode": "none"}, "balance_rl": {"mode": "none"}}  # of `curation.critic`
BUILDERS = {
    STEPS: build_steps,
    CRITIC_SFT: build_critic_sft,
    CRITIC_RL: build_critic_rl,
    CRITIC_DPO: build_critic_dpo,
    PLANNER_SFT: build_planner_sft,
    SEQUENCES: build_sequences,
}


def encoded_image(number: int, size: int = 16) -> EncodedImage:
    return EncodedImage.of(Image.new("RGB", (size, size), (number % 256, number // 256 % 256, 77)))


@dataclass
class World:
    """Collects rows; `write` puts them into the lake."""

    home: Home
    image_size: int = 16
    rows: dict[str, list[Row]] = field(default_factory=dict)
    images: int = 0

    def add(
        self,
        name: str,
        *chains: Chain,
        split: str = "train",
        status: str = "complete",
        text: str | None = None,
        input_images: int = 0,
        caption: str | None = None,
        shard: str = "toy-0000",
        chosen: str = "last",
        completed_steps: int | None = None,
        category: str = "art",
        why_rejected: str = "looks wrong",
    ) -> str:
        """Add a prompt with its plan and trajectory, whose id is returned.

        An empty chain is a text-only step.
        """
        inputs = [self._put_image() for _ in range(input_images)]
        of = {"prompt_id": name, "shard": shard}
        self._add(
            PROMPTS, **of, pack="toy", category=category, subcategory="toys", template_id="t",
            text=text or f"Tell {name}", terms=[], suffix=None, input_images=inputs, split=split,
        )  # fmt: skip
        before = inputs[-1] if inputs else None
        for number, chain in enumerate(chains, 1):
            self._add(
                PLANS, **of, plan_id=f"{name}-plan", planner="teacher", reasoning=f"why {name}",
                step_number=number, step_name=f"Part {number}",
                instruction=f"do {number}" if chain else None,
                prompt=f"draw {name} {number}" if chain else None,
                auxiliary_text=caption if chain else f"words {number}",
            )  # fmt: skip
            after = self._attempts(name, shard, number, chain, before, chosen, why_rejected)
            before = after or before
        self._add(
            TRAJECTORIES, **of, trajectory_id=f"{name}-run", plan_id=f"{name}-plan",
            status=status, on_exhausted="last", t_max=5,
            steps=len(chains) if completed_steps is None else completed_steps,
            attempts=sum(map(len, chains)), error=None,
        )  # fmt: skip
        return f"{name}-run"

    def write(self) -> Home:
        for table in (PROMPTS, PLANS, TRAJECTORIES, ATTEMPTS, SCORES):
            rows = self.rows.get(table.name, [])
            for shard in {row.shard for row in rows}:
                self.home.lake.write(table, [r for r in rows if r.shard == shard], shard)
        return self.home

    def _attempts(
        self, name: str, shard: str, number: int, chain: Chain, before: str | None, chosen: str,
        why_rejected: str,
    ) -> str | None:  # fmt: skip
        after = None
        chosen_index = len(chain) - 1 if chosen == "last" else -1
        for iteration, (score, accepted) in enumerate(chain):
            after = self._put_image()
            key = {"trajectory_id": f"{name}-run", "step_number": number, "iteration": iteration}
            key |= {"prompt_id": name, "shard": shard}
            self._add(
                ATTEMPTS, **key,
                prompt=f"try {number}.{iteration}" if iteration else f"draw {name} {number}",
                source_image=before, image=after, seed=iteration, accepted=accepted,
                chosen=iteration == chosen_index,
                refined_prompt="" if accepted else f"try {number}.{iteration + 1}",
                reasoning="looks right" if accepted else why_rejected, generator="pen",
                critic="eye", generator_seconds=0.1, critic_seconds=0.1,
            )  # fmt: skip
            self._add(
                SCORES, **key, edit_success=score, over_edit=10, naturalness=score, artifacts=10,
                semantics=score, quality=score, overall=score, scorer="ruler",
            )  # fmt: skip
        return after

    def _put_image(self) -> str:
        self.images += 1
        return self.home.images.put(encoded_image(self.images, self.image_size))

    def _add(self, table: Table, **values: object) -> None:
        self.rows.setdefault(table.name, []).append(table.row(**values))


def curate(home: Home, settings: CurationSettings, *tables: Table) -> Home:
    """Make and store some sets."""
    for table in tables:
        home.lake.write(table, BUILDERS[table](home, settings)[0])
    return home


def records(rows: pa.Table | pa.RecordBatchReader) -> list[dict]:
    table = rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows
    return table.to_pylist()


def round_plan(pack: str, shard: int) -> RoundPlan:
    """The first round, which added a shard to a pack."""
    agents = {"planner": "planner_sft_checkpoint@p", "critic": "critic_rl_checkpoint@c"}
    began_at = datetime(2026, 1, 1, tzinfo=UTC)
    shards = (f"{pack}-{shard:04}",)
    return RoundPlan(
        number=1, pack=pack, first_shard=shard, shards=shards, began_at=began_at, **agents
    )


def imported_row(number: int) -> ImportedRow:
    """A plan of the import `theirs`."""
    row = {"row_id": f"theirs:{number}", "name": "theirs", "kind": "planner_sft", "number": number}
    empty = dict.fromkeys(("origin_prompt", "rewritten_prompt", "evaluation"))
    origin = {"source": "a file", "file_sha256": "0" * 64, "licence": "MIT"}
    turns = [{"role": "user", "content": str(number)}, {"role": "assistant", "content": "a plan"}]
    return ImportedRow.model_validate({**row, **empty, **origin, "messages": turns, "images": []})
