"""Users' files: images and requests that are read, and sequences that are written.

A sequence is an HTML page, Markdown, or a ZIP of both with the images; BadImageError if an input
image cannot be decoded.
"""

import io
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from schemas import BadImageError, FoundryError
from warehouse import EncodedImage
from warehouse.storage import storage_errors

from .trajectory_view import AttemptView, StepView, TrajectoryView

FORMATS = (".html", ".md", ".zip")

_PLACEHOLDER = re.compile("<image>", re.IGNORECASE)
# Characters with a meaning in Markdown.
_INLINE = re.compile(r"([\\`*_{}\[\]<>#|~&])")
_AT_LINE_START = re.compile(r"^(\d+(?=[.)])|(?=[-+=]))")
# A ZIP of the same generation is the same bytes.
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


def render_html(trajectories: Sequence[TrajectoryView]) -> str:
    """One or several sequences as a self-contained HTML page; every text in it is escaped."""
    template = html_template(__package__, "sequence.html", title=title_of)
    return template.render(trajectories=trajectories)


def generation_html(generation: TrajectoryView) -> str:
    return render_html([generation])


def generation_markdown(generation: TrajectoryView, image_folder: str = "pictures") -> str:
    """The sequence as Markdown; `image_folder`: where it finds the `generation_images`."""
    folder = f"{quote(image_folder)}/" if image_folder else ""
    return "\n\n".join(_markdown(generation, folder)) + "\n"


def generation_images(generation: TrajectoryView) -> dict[str, EncodedImage]:
    """Every image of the Markdown, as PNG, by file name."""
    images = {_input_name(number): image for number, image in enumerate(generation.input_images, 1)}
    for step in generation.steps:
        for attempt in step.judged:
            images[_attempt_name(step, attempt)] = attempt.image
    return {name: image.as_png for name, image in images.items()}


def generation_zip(generation: TrajectoryView) -> bytes:
    """`story.html`, `story.md` and `pictures/*.png` in one ZIP."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        html, markdown = generation_html(generation), generation_markdown(generation)
        _add_file(archive, "story.html", html.encode(), zipfile.ZIP_DEFLATED)
        _add_file(archive, "story.md", markdown.encode(), zipfile.ZIP_DEFLATED)
        for name, image in generation_images(generation).items():
            _add_file(archive, f"pictures/{name}", image.data, zipfile.ZIP_STORED)
    return buffer.getvalue()


def title_of(trajectory: TrajectoryView) -> str:
    """The request's text, with `[image N]` for its placeholders."""
    placeholders = len(_PLACEHOLDER.findall(trajectory.text))
    numbers = count(max(0, len(trajectory.input_images) - placeholders) + 1)
    text = _PLACEHOLDER.sub(lambda _: f" [image {next(numbers)}] ", trajectory.text)
    return " ".join(text.split())


def _markdown(view: TrajectoryView, folder: str) -> Iterator[str]:
    yield f"# {_escape(title_of(view))}"
    for note in view.simulation:
        yield f"> {_escape(note)}"
    for number in range(1, len(view.input_images) + 1):
        yield _image(f"Input image {number}", folder + _input_name(number))
    for step in view.steps:
        yield f"## {step.number}\\. {_escape(step.name)}"
        if step.chosen:
            yield _image(step.text, folder + _attempt_name(step, step.chosen))
        if step.text:
            yield _escape(step.text)
        for attempt in step.unused:
            lines = "\n\n".join(_unused_attempt(step, attempt, folder)).split("\n")
            yield "\n".join(f"> {line}".rstrip() for line in lines)
    yield f"*{_escape(view.ending_text)}*"


def _unused_attempt(step: StepView, attempt: AttemptView, folder: str) -> Iterator[str]:
    yield f"**Attempt {attempt.number}, {'not used' if attempt.accepted else 'rejected'}**"
    alt = f"Attempt {attempt.number} at {step.name}"
    yield _image(alt, folder + _attempt_name(step, attempt))
    yield f"Prompt: {_escape(attempt.prompt)}"
    if attempt.reasoning:
        yield f"Critic: {_escape(attempt.reasoning)}"
    if attempt.refined_prompt:
        yield f"Rewritten: {_escape(attempt.refined_prompt)}"


def _image(alt: str, path: str) -> str:
    return f"![{_escape(' '.join(alt.split()))}]({path})"


def _escape(text: str) -> str:
    """Text that Markdown shows as it is, line by line."""
    lines = (_INLINE.sub(r"\\\1", line.strip()) for line in text.strip().splitlines())
    return "  \n".join(_AT_LINE_START.sub(r"\1\\", line) for line in lines)


def _input_name(number: int) -> str:
    return f"given-{number:02d}.png"


def _attempt_name(step: StepView, attempt: AttemptView) -> str:
    name = f"step-{step.number:02d}"
    return f"{name}.png" if attempt.chosen else f"{name}-attempt-{attempt.number:02d}.png"


def _add_file(archive: zipfile.ZipFile, name: str, data: bytes, compression: int) -> None:
    entry = zipfile.ZipInfo(name, _ZIP_DATE)
    entry.compress_type, entry.external_attr = compression, 0o644 << 16
    archive.writestr(entry, data)


@cache
def html_template(package: str, name: str, **filters: Callable[..., str]) -> Template:
    """A page's template beside the modules of a package; what is put into it is escaped."""
    environment = Environment(
        loader=PackageLoader(package, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(name)


def read_bytes(location: str | Path) -> bytes:
    """The content of a file, by path or fsspec URL; StorageError if it cannot be read."""
    import fsspec

    with storage_errors("opened", location):
        if "://" not in str(location):
            return Path(location).read_bytes()
        with fsspec.open(str(location), "rb") as file:
            return bytes(file.read())


def file_version(location: str) -> str | None:
    """A string that changes when the file (path or fsspec URL) is replaced; None: not available."""
    import fsspec

    with suppress(OSError, ValueError, ImportError):
        storage, path = fsspec.core.url_to_fs(location)
        return str(storage.ukey(path))
    return None


def read_image(location: str | Path) -> EncodedImage:
    """An image file, by path or fsspec URL; FoundryError if there is no readable one."""
    image = EncodedImage(read_bytes(location))
    try:
        _ = image.image
    except BadImageError as error:
        raise FoundryError(f"{location} is not a readable image such as PNG or JPEG") from error
    return image


def output_file(path: Path | None) -> Path:
    """The absolute path of an output file; None: a new `story.html` in the working directory.

    Raises:
        FoundryError: its format is unknown, or it cannot be written.
    """
    path = (path or _unused(Path("story.html"))).absolute()
    if path.suffix.lower() not in FORMATS:
        raise FoundryError(f"{path.name} is of no known format: end it in {' or '.join(FORMATS)}")
    if path.is_dir():
        raise FoundryError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise FoundryError(f"there is no folder {path.parent}: create it, or name another")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise FoundryError(f"{path} cannot be written: no permission")
    return path


def write_generation(generation: TrajectoryView, path: Path) -> None:
    """Write a generation in the format of the file's suffix; FoundryError if it cannot be written.

    Markdown gets a folder with the images beside it, `<name>-pictures`.
    """
    try:
        match path.suffix.lower():
            case ".zip":
                path.write_bytes(generation_zip(generation))
            case ".md":
                folder = path.with_name(f"{path.stem}-pictures")
                folder.mkdir(exist_ok=True)
                for name, image in generation_images(generation).items():
                    (folder / name).write_bytes(image.data)
                path.write_text(generation_markdown(generation, folder.name), "utf-8")
            case _:
                path.write_text(generation_html(generation), "utf-8")
    except OSError as error:
        raise FoundryError(f"{path} cannot be written: {error.strerror or error}") from error


def _unused(path: Path) -> Path:
    names = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return path if not path.exists() else next(name for name in names if not name.exists())
