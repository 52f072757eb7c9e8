"""Queries for tiny checkpoints, and overfitting of a checkpoint to fixed answers."""

import shutil
from pathlib import Path

from inference.agent_prompts.formatting import critic_answer, planner_answer
from inference.agent_prompts.templates import critic_prompt, planner_prompt
from inference.backends.checkpoint.backend import CheckpointModel
from inference.backends.checkpoint.encoding import AgentQuery
from inference.backends.checkpoint.manifest import MANIFEST_FILE, Manifest
from inference.backends.checkpoint.model import BatchedModel, LoadedModel
from inference.backends.checkpoint.promotions import record
from inference.backends.providers.chat import CompletionRequest
from inference.backends.providers.structured import CompletionResult
from inference.roles import Plan, PlanStep, Verdict
from schemas.training import CHECKPOINTS, CheckpointStatus
from tests.helpers.checkpoint_rows import checkpoint_row
from tests.helpers.tiny_model import labelled
from warehouse import EncodedImage, Home

Sample = tuple[AgentQuery, str]

PROMPTS = {
    "critic": "critic-brief@1",
    "planner_text": "planner-brief@1",
    "planner_interleaved": "planner-continue-brief@1",
}
BOTH = Manifest(
    name="tiny",
    version="1",
    role="both",
    agent_prompts=PROMPTS,
    image_max_pixels=96 * 96,
    max_new_tokens={"planner": 60, "critic": 40},
)
ACCEPTED = Verdict(True, "", "The step succeeded.")
PLANNED = Plan((PlanStep(1, "A cat", "Draw it.", "Draw a red cat.", None),), "One step.")


class RecordingClient:
    """A provider's client that records requests, and answers each with a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.requests: list[CompletionRequest] = []

    async def complete(self, request: CompletionRequest) -> CompletionResult:
        self.requests.append(request)
        return CompletionResult(self.text)


def register(
    home: Home,
    name: str,
    version: str = "1",
    status: CheckpointStatus = "promoted",
    role: str = "both",
    weights: Path | None = None,
) -> Path:
    """Register a checkpoint, again or with weights that are copied; returns its folder."""
    folder = home.local / "checkpoints" / name / version
    if weights and not folder.exists():
        shutil.copytree(weights, folder)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = BOTH.model_copy(update={"name": name, "version": version, "role": role})
    (folder / MANIFEST_FILE).write_text(manifest.model_dump_json())
    home.lake.write(
        CHECKPOINTS, [checkpoint_row(name, version, folder, status)], f"{name}-{version}"
    )
    if status == "promoted":
        record(home, "promote", {name: version}, "it is good")
    return folder


def critic_query(goal: str, *images: EncodedImage, rewritten: str = "") -> AgentQuery:
    return AgentQuery(critic_prompt(goal, rewritten, "critic-brief").text, images, 40)


def planner_query(request: str, limit: int = 60) -> AgentQuery:
    return AgentQuery(planner_prompt(request, "planner-brief").text, (), limit)


def texts_of(model: BatchedModel, queries: list[AgentQuery]) -> list[str]:
    """The texts of all answers, in order."""
    return [completion.text for completion in model.attempt(queries)]


def greedy_tokens(loaded: LoadedModel, query: AgentQuery, new: int) -> list[int]:
    """So many tokens of transformers' own greedy search, for one query and without padding."""
    import torch
    from transformers import GenerationConfig

    inputs = loaded.encoder.pad([loaded.encoder.encode(query)], "cpu")
    greedy = GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=None)
    loaded.model.model.rope_deltas = None
    with torch.inference_mode():
        output = loaded.model.generate(**inputs, generation_config=greedy)
    return list(output[0, inputs["input_ids"].shape[1] :].tolist())


def fixed_answers() -> list[Sample]:
    """One verdict on every image, and one plan for every request."""
    whites = (EncodedImage.white((96, 96)), EncodedImage.white((96, 96)))
    return [
        (critic_query("Draw a cat.", *whites), critic_answer(ACCEPTED)),
        (critic_query("Draw a cat.", *whites, rewritten="Draw a cat."), critic_answer(ACCEPTED)),
        (critic_query("Add a dog.", *whites), critic_answer(ACCEPTED)),
        (planner_query("a story"), planner_answer(PLANNED)),
        (planner_query("another one"), planner_answer(PLANNED)),
    ]


def overfit(folder: Path, samples: list[Sample], steps: int = 60) -> None:
    """Train the checkpoint until it gives these answers to these queries."""
    import torch

    loaded = CheckpointModel(folder).loaded
    model = loaded.model
    inputs, labels = labelled(loaded.encoder, samples)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(steps):
        model(**inputs, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval().save_pretrained(folder)
