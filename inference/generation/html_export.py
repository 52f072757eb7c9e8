"""A told story as files that people keep: one HTML page, Markdown, and a ZIP of both."""

import io
import re
import zipfile
from collections.abc import Iterator
from functools import cache
from itertools import count
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from warehouse import EncodedImage

from ..events import TrajectoryFailed
from .generation_state import AttemptState, GenerationState, StepState

_PLACEHOLDER = re.compile("<image>", re.IGNORECASE)
# What Markdown would read as more than the letters that they are.
_INLINE = re.compile(r"([\\`*_{}\[\]<>#|~&])")
_AT_LINE_START = re.compile(r"^(?:([-+=])|(\d+)([.)]))")
_ENDINGS = {
    "complete": "Complete",
    "exhausted": "Complete, though not every picture was accepted",
    "stopped": "Stopped where no picture was accepted",
    "quarantined": "Set aside",
}
# A ZIP of the same story is the same bytes.
_NO_DATE = (1980, 1, 1, 0, 0, 0)


def generation_html(story: GenerationState) -> str:
    """The story as one HTML file that needs no other; every text in it is escaped.

    Raises:
        BadImageError: a given picture cannot be decoded.
    """
    return _template().render(story=story, title=title_of(story), ending=ending_of(story))


def generation_markdown(story: GenerationState, picture_folder: str = "pictures") -> str:
    """The story as Markdown; its pictures are those of `generation_images`, in a folder beside it."""
    folder = f"{quote(picture_folder)}/" if picture_folder else ""
    return "\n\n".join(_markdown(story, folder)) + "\n"


def generation_images(story: GenerationState) -> dict[str, EncodedImage]:
    """Every picture that the Markdown shows, as PNG, by file name.

    Raises:
        BadImageError: a given picture cannot be decoded.
    """
    named = {_given_name(number): picture for number, picture in enumerate(story.given, 1)}
    for step in story.steps:
        for attempt in [*filter(None, [step.chosen]), *step.refused]:
            named[_attempt_name(step, attempt)] = attempt.picture
    return {name: picture.as_png for name, picture in named.items()}


def generation_zip(story: GenerationState) -> bytes:
    """`story.html`, `story.md` and `pictures/*.png` in one ZIP.

    Raises:
        BadImageError: a given picture cannot be decoded.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        _pack(archive, "story.html", generation_html(story).encode(), zipfile.ZIP_DEFLATED)
        _pack(archive, "story.md", generation_markdown(story).encode(), zipfile.ZIP_DEFLATED)
        for name, picture in generation_images(story).items():
            _pack(archive, f"pictures/{name}", picture.data, zipfile.ZIP_STORED)
    return buffer.getvalue()


def title_of(story: GenerationState) -> str:
    """The request's words, with the given pictures' numbers where they belong."""
    first = max(0, len(story.given) - len(_PLACEHOLDER.findall(story.text)))
    numbers = count(first + 1)
    words = _PLACEHOLDER.sub(lambda _: f" [picture {next(numbers)}] ", story.text)
    return " ".join(words.split())


def ending_of(story: GenerationState) -> str:
    """How it ended, in words."""
    match story.ending:
        case None:
            return "Not finished"
        case TrajectoryFailed(reason=reason, refused=refused):
            return f"{'Refused' if refused else 'Failed'}: {reason}"
        case finished:
            return _ENDINGS[finished.status]


def _markdown(story: GenerationState, folder: str) -> Iterator[str]:
    yield f"# {_plain(title_of(story))}"
    for number in range(1, len(story.given) + 1):
        yield _picture(f"Given picture {number}", folder + _given_name(number))
    for step in story.steps:
        yield f"## {step.step.step_number}\\. {_plain(step.step.step_name)}"
        if step.chosen:
            yield _picture(step.words, folder + _attempt_name(step, step.chosen))
        if step.words:
            yield _plain(step.words)
        for attempt in step.refused:
            yield _quoted(_refusal(step, attempt, folder))
    yield f"*{_plain(ending_of(story))}*"


def _refusal(step: StepState, attempt: AttemptState, folder: str) -> Iterator[str]:
    verdict = attempt.verdict
    accepted = verdict and verdict.accepted
    yield f"**Attempt {attempt.draw.iteration + 1}, {'not used' if accepted else 'refused'}**"
    alt = f"Attempt {attempt.draw.iteration + 1} at {step.step.step_name}"
    yield _picture(alt, folder + _attempt_name(step, attempt))
    yield f"Prompt: {_plain(attempt.draw.prompt)}"
    if verdict and verdict.reasoning:
        yield f"Critic: {_plain(verdict.reasoning)}"
    if verdict and verdict.refined_prompt:
        yield f"Rewritten: {_plain(verdict.refined_prompt)}"


def _quoted(paragraphs: Iterator[str]) -> str:
    lines = "\n\n".join(paragraphs).split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _picture(alt: str, path: str) -> str:
    return f"![{_plain(' '.join(alt.split()))}]({path})"


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, line by line."""
    lines = (_INLINE.sub(r"\\\1", line.strip()) for line in text.strip().splitlines())
    return "  \n".join(_AT_LINE_START.sub(_escaped_start, line) for line in lines)


def _escaped_start(found: re.Match[str]) -> str:
    mark, number, after = found.groups()
    return f"\\{mark}" if mark else f"{number}\\{after}"


def _given_name(number: int) -> str:
    return f"given-{number:02d}.png"


def _attempt_name(step: StepState, attempt: AttemptState) -> str:
    name = f"step-{step.step.step_number:02d}"
    chosen = attempt is step.chosen
    return f"{name}.png" if chosen else f"{name}-attempt-{attempt.draw.iteration + 1:02d}.png"


def _pack(archive: zipfile.ZipFile, name: str, data: bytes, compression: int) -> None:
    entry = zipfile.ZipInfo(name, _NO_DATE)
    entry.compress_type, entry.external_attr = compression, 0o644 << 16
    archive.writestr(entry, data)


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")
