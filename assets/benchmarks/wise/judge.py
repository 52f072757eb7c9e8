"""What a judge of WISE is asked, and how its answers are read.

A judge sees the prompt, its explanation and the picture as it was drawn. The legacy protocol asks
for three scores of 0 to 2, the verified one for a single 0 or 1; the wording is ours.
"""

import re

from pydantic import JsonValue

from warehouse import EncodedImage

from ..benchmark import JudgeCall
from .items import Version, WisePrompt

SCORE = "score"
CRITERIA = ("consistency", "realism", "aesthetic_quality")

_LEGACY_TASK = """\
You grade an image that a system drew for a prompt. The prompt hints at something that one has to \
know; the explanation says what that is. Grade three criteria with an integer from 0 to 2 each. Be \
strict: give a 2 only where you find nothing to object to, and the lower score where you waver.

Consistency: does the image show what prompt and explanation call for? 0 if something essential is \
absent or contradicted, 1 if only a part of it is there or right, 2 if all of it is.
Realism: could it be a photograph of the real world? 0 if it is plainly artificial or physically \
impossible, 1 if it is believable with visible faults, 2 if it could pass for a photograph.
Aesthetic Quality: how good are composition, colours and style? 0 if poor, 1 if ordinary, 2 if \
outstanding.

End with exactly these three lines, an integer in the place of each N:
Consistency: N
Realism: N
Aesthetic Quality: N"""
_VERIFIED_TASK = """\
You decide whether an image is a right answer to a prompt. The prompt hints at something that one \
has to know; the explanation says what that is and is your standard.

The score is 1 if the image shows what prompt and explanation call for, with the things, states \
and relations that matter, and is clear enough to be sure of that. Style and beauty do not count.
The score is 0 if what is meant is absent, wrong or contradicted, if only the words of the prompt \
are drawn and not what they mean, if one cannot tell, or if the image is badly broken. In serious \
doubt it is 0.

End with exactly one line, 0 or 1 in the place of N:
Score: N"""
_TASKS: dict[Version, str] = {"legacy": _LEGACY_TASK, "verified": _VERIFIED_TASK}
_SCALES: dict[Version, tuple[tuple[str, ...], str]] = {
    "legacy": (CRITERIA, "[0-2]"),
    "verified": ((SCORE,), "[01]"),
}


def score_call(prompt: WisePrompt, image: EncodedImage, version: Version) -> JudgeCall:
    """The call that grades a picture."""
    text = f"{_TASKS[version]}\n\nPrompt: {prompt.prompt}\nExplanation: {prompt.explanation}"
    return JudgeCall(SCORE, text, (image,))


def parse_scores(text: str, version: Version) -> dict[str, JsonValue] | None:
    """Criterion -> integer of its scale, `score` in the verified version.

    None: a criterion is missing, outside its scale, or there with different scores.
    """
    names, scale = _SCALES[version]
    scores = {name: _score(text, name, scale) for name in names}
    return None if None in scores.values() else {**scores}


def _score(text: str, name: str, scale: str) -> int | None:
    label = name.replace("_", r"[ _]")
    line = rf"^[ \t*_#>-]*{label}[\s*_]*:[\s*_]*(.*?)[\s*_.]*$"
    found = set(re.findall(line, text, re.IGNORECASE | re.MULTILINE))
    value = found.pop() if len(found) == 1 else ""
    return int(value) if re.fullmatch(scale, value) else None
