"""Stories as files that people download."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from starlette.responses import Response

from ..telling.page import story_html, story_markdown, story_zip
from ..telling.story import StorySoFar

Ending = Literal["html", "md", "zip"]


@dataclass(frozen=True)
class _Format:
    media_type: str
    write: Callable[[StorySoFar], str | bytes]


_FORMATS: dict[Ending, _Format] = {
    "html": _Format("text/html", story_html),
    "md": _Format("text/markdown", story_markdown),
    "zip": _Format("application/zip", story_zip),
}


def download(story: StorySoFar, story_id: str, ending: Ending) -> Response:
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
