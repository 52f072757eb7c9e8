"""What of a user's request the sketch world can draw, said before anything is drawn.

It is a simulation with a small vocabulary. The planner finds the words that it knows and skips
the others; here a request of which it would skip too much is refused, with what could be asked
instead, and what it skips is named.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache

from warehouse import EncodedImage

from ..roles import Plan, PlanRequest, RequestScope
from .grader import plan_is_correct
from .object_catalog import COLOURS, KINDS
from .outlines import Outline, outline_request
from .perception import perceive_cached
from .prompt_writer import with_article
from .request_parser import RequestText, english
from .story_catalog import CatalogStory, choose_story, fill_text, load_stories

NOTICE = (
    "Simulated: the sketch world draws simple objects and some thirty stories without any model. "
    "Choose another profile for an image model."
)
EXAMPLES = (
    "Show how a red flower grows, with captions",
    "Show the phases of the moon",
    "Draw a blue house, a tree and a cat on a meadow",
)
_MIN_CONFIDENCE = 0.8  # share of pixels that a picture of this world explains
_WORDS = re.compile(r"[^\W\d_]['\w]*|[.,;:!?()\"]")


def scope(request: PlanRequest, plan: Plan | None = None) -> RequestScope:
    """What the sketch world draws of a request, with what a plan lacks of it.

    Raises:
        BadImageError: an image cannot be decoded.
    """
    text, images = RequestText(request.text), request.images
    remarks = tuple(_strange_pictures(images))
    if images and text.wants_words_only:
        return RequestScope(NOTICE, remarks=remarks)
    before = perceive_cached(images[-1]).scene if images else None
    outline = outline_request(text, before)
    unknown = tuple(dict.fromkeys(_unknown(text, outline)))
    not_drawn = tuple(dict.fromkeys([*unknown, *outline.not_drawn]))
    if refusal := _refusal(text, outline, unknown):
        suggestions = tuple(dict.fromkeys([*_similar_requests(text, unknown), *EXAMPLES]))
        return RequestScope(NOTICE, refusal, unknown, remarks, suggestions)
    missed = plan is not None and not plan_is_correct(request, plan)
    planned = ("The plan's pictures do not end as requested.",) if missed else ()
    remarks = (*remarks, *outline.remarks, *planned)
    return RequestScope(NOTICE, not_drawn=not_drawn, remarks=remarks)


def _unknown(text: RequestText, outline: Outline) -> Iterable[str]:
    """What the request names that the sketch world does not have."""
    if outline.instructions is None:
        return unknown_phrases(text, choose_story(text))
    return outline.instructions.unknown


def unknown_phrases(text: RequestText, story: CatalogStory | None = None) -> Iterator[str]:
    """Nouns with the words before them that are nothing the world or the story knows."""
    known = {mention.name for mention in text.mentions} | (story.words if story else set())
    for phrase in _noun_phrases(text.raw):
        head, said = phrase[-1], RequestText(" ".join(phrase))
        has_thing = any(mention.sort == "thing" for mention in said.mentions)
        is_known = any(mention.end == len(said.raw) for mention in said.mentions)
        is_activity = len(phrase) == 1 and len(head) > 4 and head.endswith(("ing", "ed"))
        is_known = is_known or head in english("neutral") or head in known
        if not (has_thing or is_activity or is_known):
            yield " ".join(phrase)


def _refusal(text: RequestText, outline: Outline, unknown: Sequence[str]) -> str | None:
    """Why nothing is drawn; None: enough of the request is known."""
    things = outline.instructions.things if outline.instructions else ()
    if _is_foreign(text.raw.lower()):
        reason = "the sketch world understands English only"
    elif outline.steps and (outline.instructions is None or len(unknown) <= len(things)):
        return None
    elif unknown:
        listed = " or ".join(f"“{phrase}”" for phrase in unknown[:3])
        reason = f"the sketch world has no {listed}"
    elif outline.remarks:
        quoted = ", ".join(f"“{word}”" for word in outline.not_drawn)
        reason = " ".join(outline.remarks).removesuffix(".") + (quoted and f": {quoted}")
    else:
        reason = "it names nothing that the sketch world can draw"
    return f"We can't illustrate this request: {reason}."


def _is_foreign(text: str) -> bool:
    """Whether it has more words that only other languages have than common ones of English."""
    words = set(re.findall(r"\w+", text))
    foreign = {word for word in words if word in english("foreign") or not word.isascii()}
    return len(foreign) > len(words & english("separators"))


def _similar_requests(text: RequestText, unknown: Sequence[str]) -> list[str]:
    """Stories about a word of the request, then things spelled like one that is unknown."""
    words = {word for word in text.words.split() if len(word) > 3} - english("separators")
    stories = [f"Show {title}" for title, own in _titles().items() if own & words]
    kinds = (get_close_matches(phrase.split()[-1], KINDS, 2, 0.75) for phrase in unknown)
    return [*stories, *(f"Draw {with_article(kind)}" for each in kinds for kind in each)][:3]


def _strange_pictures(images: Sequence[EncodedImage]) -> Iterator[str]:
    for number, image in enumerate(images, 1):
        if perceive_cached(image).confidence < _MIN_CONFIDENCE:
            yield (
                f"Image {number} wasn't drawn by the sketch world, which sees only simple objects "
                "in nine positions."
            )


def _noun_phrases(raw: str) -> Iterator[tuple[str, ...]]:
    """Words between a word that introduces a noun and one that ends it."""
    phrase, is_open = list[str](), False
    for word in [*_WORDS.findall(raw.lower().replace("<image>", " ")), "."]:
        if word in english("separators") or not word[0].isalpha():
            if phrase:
                yield tuple(phrase)
            phrase, is_open = [], word == "," or word in english("openers")
        elif is_open:
            phrase.append(word.removesuffix("'s"))


@cache
def _titles() -> dict[str, set[str]]:
    """Title of each story -> the words in it."""
    stories = load_stories().values()
    first = (
        {name: slot.choices[n % len(slot.choices)] for n, (name, slot) in enumerate(items)}
        for items in (story.slots.items() for story in stories)
    )
    filled = [fill_text(story.title, values) for story, values in zip(stories, first, strict=True)]
    return {title: set(title.split()) - COLOURS.keys() for title in filled}
