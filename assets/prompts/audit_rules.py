"""What rules can say of a prompt's text, without a model."""

import re
from collections.abc import Collection

from inference.agent_prompts.templates import IMAGE
from schemas.prompts import PromptAuditRow, PromptRow

AUDITOR = "rules"
_UNNATURAL = {
    "an unfilled slot": re.compile(r"[{}]"),
    "a word twice in a row": re.compile(r"\b(\w+) \1\b", re.IGNORECASE),
    "two articles in a row": re.compile(r"\b(a|an|the) (a|an|the)\b", re.IGNORECASE),
    "spaces in the wrong place": re.compile(r"\s\s|\s[.,?!]|^\s|\s$"),
    "two marks in a row": re.compile(r"[.,?!]{2}"),
}
_ABSENT = re.compile(
    r"\b(existing|previous|given|attached|above)\b[\w\s]{0,12}\b(steps?|pictures?|images?|photos?)\b",
    re.IGNORECASE,
)
_COMPOSITE = re.compile(
    r"\b(as|into|make|draw|create) an? [\w\s-]{0,20}\b(collage|comic strip|checklist)\b"
    r"|\bposter with [\w\s-]{0,20}\b(panels|pictures)\b|\bfacing pages\b|\binstruction sheet\b",
    re.IGNORECASE,
)
# A prompt that begins so asks for one picture, unless one of the words below speaks of several.
_DRAW = re.compile(
    r"(show|draw|paint|depict|picture|photograph|render|illustrate|create|make|design)\b",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"""\b(
    pictures|photos|photo\salbum|portraits|images|panels|slides|cards|pages|frames?|diagrams
    |scenes|(every|the)\sscene(?!$)|moments|settings|things|details|(picture|detail|part)\s(at\sa|per)
    |steps?|stages?|phases|parts|layers?|stops?|sequence|series|process|recipe|lives?
    |story|comic|storyboard|film|book|album|diary|article|information\sboard
    |guide|tutorial|manual|instructions|lesson|workshop
    |each|both|how|when|where|ways?|what\s(?!can\sbe\sseen)|who\sdoes|eyes\sof
    |first(?!\ssnow)|then|again|before|and\safter|during|until|from\s[\w\s'-]+\sto
    |(?P<unit>\w+)\sby\s(?P=unit)
    |develops|growing|becoming|turning|day|year|month|season|spring|today
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_SAYS_NOTHING = re.compile(
    r"\bin the style of an? [\w'-]+( (?!and\b)[\w'-]+){0,2}|\bafter a thunderstorm\b"
)
_MOST_WORDS = 60


def audit_by_rules(
    prompt: PromptRow, subcategories: Collection[str], composite: Collection[str]
) -> PromptAuditRow:
    """Judge a prompt by its words.

    Args:
        subcategories: those that its template serves.
        composite: templates that ask for one picture with several panels.
    """
    faults = {
        "natural": _unnatural(prompt.text),
        "feasible": _asks_for_what_is_absent(prompt),
        "in_category": _misplaced(prompt, subcategories),
        "several_images": _asks_for_one_picture(prompt, composite),
    }
    reasons = [fault for fault in faults.values() if fault]
    return PromptAuditRow(
        prompt_id=prompt.prompt_id,
        auditor=AUDITOR,
        **{name: not fault for name, fault in faults.items()},
        reason="; ".join(reasons) or None,
    )


def _unnatural(text: str) -> str:
    found = [name for name, pattern in _UNNATURAL.items() if pattern.search(text)]
    if len(text.split()) > _MOST_WORDS:
        found.append(f"more than {_MOST_WORDS} words")
    return f"it has {', '.join(found)}" if found else ""


def _asks_for_what_is_absent(prompt: PromptRow) -> str:
    given = len(prompt.input_image_texts or prompt.input_images)
    match = re.search(IMAGE, prompt.text) if prompt.text.count(IMAGE) > given else None
    match = match or (None if given else _ABSENT.search(prompt.text))
    return f"it speaks of {match[0]!r}, which it does not come with" if match else ""


def _misplaced(prompt: PromptRow, subcategories: Collection[str]) -> str:
    served = not subcategories or prompt.subcategory in subcategories
    return "" if served else f"its template does not serve {prompt.subcategory}"


def _asks_for_one_picture(prompt: PromptRow, composite: Collection[str]) -> str:
    if prompt.template_id in composite or _COMPOSITE.search(prompt.text):
        return "it asks for one composite picture"
    if _DRAW.match(prompt.text) and not _SEVERAL.search(_SAYS_NOTHING.sub("", prompt.text)):
        return "it asks for one picture"
    return ""
