"""Stories as files that people download."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from starlette.responses import Response

from ...generation.generation_state import GenerationState
from ...generation.html_export import generation_html, generation_markdown, generation_zip

Ending = Literal["html", "md", "zip"]


@dataclass(frozen=True)
class _Format:
    media_type: str
    write: Callable[[GenerationState], str | bytes]


_FORMATS: dict[Ending, _Format] = {
    "html": _Format("text/html", generation_html),
    "md": _Format("text/markdown", generation_markdown),
    "zip": _Format("application/zip", generation_zip),
}


def download(story: GenerationState, story_id: str, ending: Ending) -> Response:
    """The story as an attachment.

    Raises:
        BadImageError: one of its pictures cannot be read.
    """
    form = _FORMATS[ending]
    return Response(
        form.write(story),
        media_type=form.media_type,
        headers={
            "Content-Disposition": f'attachment; filename="story-{story_id}.{ending}"',
            # Opened in place it would be a page of this origin.
            "Content-Security-Policy": "sandbox",
            "X-Content-Type-Options": "nosniff",
        },
    )
