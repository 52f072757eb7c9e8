"""What the tests ask tiny checkpoints, and how one learns two answers by heart."""

from pathlib import Path

from inference.agent_prompts import critic_answer, critic_prompt, planner_answer, planner_prompt
from inference.backends.checkpoint.encoding import AgentQuery
from inference.backends.checkpoint.manifest import Manifest
from inference.backends.checkpoint.model import load_checkpoint_model
from inference.roles import Plan, PlanStep, Verdict
from warehouse import EncodedImage

Lesson = tuple[AgentQuery, str]

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


def critic_asked(goal: str, *pictures: EncodedImage, limit: int = 40) -> AgentQuery:
    return AgentQuery(critic_prompt(goal, "", "critic-brief").text, pictures, limit)


def planner_asked(request: str, limit: int = 60) -> AgentQuery:
    return AgentQuery(planner_prompt(request, "planner-brief").text, (), limit)


def always_the_same() -> list[Lesson]:
    """One verdict on every picture, and one plan for every request."""
    whites = (EncodedImage.white((96, 96)), EncodedImage.white((96, 96)))
    return [
        (critic_asked("Draw a cat.", *whites), critic_answer(ACCEPTED)),
        (critic_asked("Add a dog.", *whites), critic_answer(ACCEPTED)),
        (planner_asked("a story"), planner_answer(PLANNED)),
        (planner_asked("another one"), planner_answer(PLANNED)),
    ]


def learn_by_heart(folder: Path, lessons: list[Lesson], steps: int = 60) -> None:
    """Train the checkpoint until it gives these answers to these questions."""
    import torch

    agent = load_checkpoint_model(folder)
    encoder, model = agent._loaded.encoder, agent._loaded.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(steps):
        for question, answer in lessons:
            loss = _loss(encoder, model, question, answer)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval().save_pretrained(folder)


def _loss(encoder, model, question, answer):
    from dataclasses import replace

    import torch

    prompt = encoder.encode(question)
    told = encoder._tokenizer.encode(f"{answer}<|im_end|>", add_special_tokens=False)
    whole = replace(prompt, tokens=[*prompt.tokens, *told])
    batch = encoder.pad([whole], model.device)
    labels = torch.tensor([[-100] * len(prompt.tokens) + told])
    return model(**batch.inputs, labels=labels).loss
