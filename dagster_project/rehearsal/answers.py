"""Answers that stand in for those of real models: valid in form, decided by chance.

Without them nothing would be left after the first stage, since random weights write no plans.
"""

import json
import random
from typing import Any

from inference.agent_prompts.formatting import PLAN_KEY, REFINE_KEY, SUCCESS_KEY

_THOUGHT = "rehearsal"
_DRAWN = "Draw a meadow with a red house at the bottom left."
_ADDED = "Add a green tree at the bottom right. Keep everything else unchanged."
_REWRITTEN = "Draw a meadow with a large red house at the bottom left."
_ACCEPTED = 0.5  # share of verdicts
_BEST, _WORST = 10.0, 4.0  # scores of an attempt
_SEMANTICS, _QUALITY = ("edit_success", "over_edit"), ("naturalness", "artifacts")


def answer(fields: frozenset[str], chance: random.Random, criteria: int = 1) -> dict[str, Any]:
    """An answer with these fields, beside `reasoning`; of other fields it is empty.

    Args:
        fields: properties of the answer's schema (`structured.py` in `backends/providers`).
        criteria: how many are to be judged.
    """
    values: dict[str, Any] = {"reasoning": _THOUGHT}
    if PLAN_KEY in fields:
        values[PLAN_KEY] = plan()
    if SUCCESS_KEY in fields:
        values |= verdict(chance.random() < _ACCEPTED)
    grades = [name for name in (*_SEMANTICS, *_QUALITY) if name in fields]
    values |= {name: round(chance.uniform(_WORST, _BEST), 1) for name in grades}
    if "terms" in fields:
        values["terms"] = []
    if "picture_criteria" in fields:
        picture, text = "A house is to be seen.", "The text names a house."
        values |= {"image_count": None, "picture_criteria": [picture], "text_criteria": [text]}
    if "answers" in fields:
        values["answers"] = [
            {"number": n, "met": chance.random() < _ACCEPTED} for n in range(1, criteria + 1)
        ]
    return values


def plan() -> list[dict[str, Any]]:
    """Two steps, each drawn and told; the sketch world's generator understands them as well."""
    steps = (("House", _DRAWN, "A house."), ("Tree", _ADDED, "A tree grows beside it."))
    return [
        {
            "step_number": number,
            "step_name": name,
            "instruction": prompt,
            "prompt": prompt,
            "auxiliary_text": text,
        }
        for number, (name, prompt, text) in enumerate(steps, 1)
    ]


def verdict(accepted: bool) -> dict[str, Any]:
    return {SUCCESS_KEY: accepted, REFINE_KEY: "" if accepted else _REWRITTEN}


def whole_answers() -> list[str]:
    """Compact JSON for every schema that the decoding of a model on vLLM may be held to."""
    schemas = [
        frozenset({PLAN_KEY}),
        frozenset(_SEMANTICS),
        frozenset(_QUALITY),
        frozenset({*_SEMANTICS, *_QUALITY}),
        frozenset({"terms"}),
        frozenset({"picture_criteria"}),
        frozenset({"answers"}),
    ]
    chance = random.Random(0)
    contents = [answer(fields, chance, criteria=2) for fields in schemas]
    contents += [{"reasoning": _THOUGHT, **verdict(accepted)} for accepted in (True, False)]
    return [json.dumps(content, separators=(",", ":")) for content in contents]


def tagged_answers() -> list[str]:
    """In the form of trained agents, each readable as a plan and as a verdict."""
    contents = [{PLAN_KEY: plan(), **verdict(accepted)} for accepted in (True, False)]
    return [
        f"<think>{_THOUGHT}</think>\n<answer>{json.dumps(content)}</answer>" for content in contents
    ]


def edit_scores() -> list[str]:
    """In the form of EditScore, out of 25."""
    return [json.dumps({"reasoning": _THOUGHT, "score": [n, n]}) for n in (12, 22)]
