"""What a judge of RISE is asked, and how its answers are read.

Three questions about a picture: does it leave alone what the instruction does not touch, does it
show what follows from the instruction, and could it be real? Logical items have no third one, and
the answers to the others are yes (1) or no (0); otherwise integers from 1 to 5. What is shown for
which item is the benchmark's; the wording is ours.
"""

import re

from warehouse import EncodedImage

from ..benchmark import JudgeCall
from .items import LOGICAL, RiseData, RiseItem

CONSISTENCY, REASONING, PLAUSIBILITY = "consistency", "reasoning", "plausibility"
_BINARY = "-yes-no"  # ends the names of calls whose answer is 0 or 1
IMAGE_SIZE = (768, 768)  # to which the protocol reduces larger pictures

_GRADE = "End with exactly one line, an integer from 1 to 5 in the place of N:\nFinal score: N"
_YES_NO = "End with exactly one line, 1 for yes or 0 for no in the place of N:\nFinal score: N"

_CONSISTENCY_TASK = """\
The first image was given to a system, the second is what it made of it by the instruction. Leave \
aside what the instruction changes. How much of everything else is as it was: persons, things, \
places, colours, style, background? 5: all of it; 4: one small difference; 3: one that is plain to \
see; 2: several of those; 1: nearly everything differs."""
_LOGICAL_CONSISTENCY_TASK = """\
The first image belongs to a problem, the second is a system's picture of the solution. Leave \
aside the marks of the solution itself. Do style, colours, lines, lettering, arrangement and \
background of the second agree with the first (slightly lighter or darker is the same)?"""
_REASONING_TASK = """\
The instruction asks for a change whose result one has to infer. How well does the system's \
picture, the last image, show the right result? 5: in every detail and to the right degree; 4: \
with small deviations; 3: in part; 2: what matters is absent or wrong; 1: not at all."""
_LOGICAL_TEXT_TASK = """\
The image is a system's picture of the solution of a problem. Does it show the right answer, and \
nothing more than that answer?"""
_LOGICAL_IMAGE_TASK = """\
The first image shows the right solution of a problem, the second a system's. Is the second the \
same solution, with nothing absent, different or added? Size and background do not matter."""
_PLAUSIBILITY_TASK = """\
The image was made by a system. How sharp, natural and physically possible is it? 5: flawless; 4: \
small faults; 3: faults in parts that matter; 2: blurred or distorted to a large extent; 1: hardly \
to be recognised or entirely unreal."""
_RENDERED = " That it looks like a 3D rendering is no fault."
_WATERMARK = " A watermark in a lower corner does not count."


def parse_score(call: str, text: str) -> int | None:
    """The integer of the final line; None: there is none of the scale, or several differ."""
    found = set(
        re.findall(
            r"^[ \t*_#>-]*final score[\s*_]*:[\s*_]*(.*?)[\s*_.]*$",
            text,
            re.IGNORECASE | re.MULTILINE,
        )
    )
    value = found.pop() if len(found) == 1 else ""
    scale = "[01]" if call.endswith(_BINARY) else "[1-5]"
    return int(value) if re.fullmatch(scale, value) else None


def call_names(item: RiseItem) -> dict[str, str]:
    """Dimension -> name of its call, of the dimensions in which an item is judged."""
    if item.group == LOGICAL:
        return {name: f"{name}{_BINARY}" for name in (CONSISTENCY, REASONING)}
    free = item.is_consistency_free
    names = (REASONING, PLAUSIBILITY) if free else (CONSISTENCY, REASONING, PLAUSIBILITY)
    return {name: name for name in names}


def judge_calls(data: RiseData, item: RiseItem, image: EncodedImage) -> list[JudgeCall]:
    """All calls about a picture; FoundryError: a picture of the item is missing or damaged."""
    builders = {
        CONSISTENCY: _consistency_call,
        REASONING: _reasoning_call,
        PLAUSIBILITY: _plausibility_call,
    }
    return [builders[each](name, data, item, image) for each, name in call_names(item).items()]


def _consistency_call(name: str, data: RiseData, item: RiseItem, image: EncodedImage) -> JudgeCall:
    # As in the official script, a reference picture also takes the place of the given one here.
    before = data.picture(item, item.reference_picture or item.image)
    logical = item.group == LOGICAL
    task = (_LOGICAL_CONSISTENCY_TASK if logical else _CONSISTENCY_TASK) + (
        "" if item.group in ("temporal", "causal") else _WATERMARK
    )
    facts = {
        "Instruction": item.instruction,
        "Right answer": item.reference_txt if logical else None,
    }
    return _call(name, task, facts, before, image)


def _reasoning_call(name: str, data: RiseData, item: RiseItem, image: EncodedImage) -> JudgeCall:
    facts = _reasoning_facts(data, item)
    if item.reference_picture:
        reference = data.picture(item, item.reference_picture)
        if item.group == LOGICAL:
            return _call(name, _LOGICAL_IMAGE_TASK, facts, reference, image)
        task = f"{_REASONING_TASK} The first image shows the right result."
        return _call(name, task, facts, reference, image)
    if item.group == LOGICAL:
        return _call(name, _LOGICAL_TEXT_TASK, facts, image)
    if item.shows_before:
        task = f"{_REASONING_TASK} The first image is the one that was to be changed."
        return _call(name, task, facts, data.picture(item, item.image), image)
    return _call(name, _REASONING_TASK, facts, image)


def _reasoning_facts(data: RiseData, item: RiseItem) -> dict[str, str | None]:
    if item.group == LOGICAL and not item.reference_picture:
        return {"Right answer": item.reference_txt}
    if item.group == LOGICAL:
        return {} if data.wordless else {"Instruction": item.instruction}
    result = None if item.reference_picture else item.reference
    return {"Instruction": item.instruction, "Right result": result}


def _plausibility_call(name: str, data: RiseData, item: RiseItem, image: EncodedImage) -> JudgeCall:
    task = _PLAUSIBILITY_TASK + (_RENDERED if item.group == "spatial" else "")
    return _call(name, task, {}, image)


def _call(name: str, task: str, facts: dict[str, str | None], *images: EncodedImage) -> JudgeCall:
    ending = _YES_NO if name.endswith(_BINARY) else _GRADE
    lines = [f"{label}: {text}" for label, text in facts.items() if text]
    text = "\n\n".join(part for part in (task, "\n".join(lines), ending) if part)
    return JudgeCall(name, text, tuple(_reduced(image) for image in images))


def _reduced(image: EncodedImage) -> EncodedImage:
    if max(image.image.size) <= IMAGE_SIZE[0]:
        return image
    small = image.image.copy()
    small.thumbnail(IMAGE_SIZE)
    return EncodedImage.of(small)
