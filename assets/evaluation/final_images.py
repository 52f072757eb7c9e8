"""The last pictures of some stories, variant beside variant, for people to judge at a glance."""

from collections.abc import Mapping, Sequence

from inference.engine.hashing import stable_hash
from schemas.prompts import PromptRow
from warehouse import ImageStore

from ..trajectories.contact_sheet import contact_sheet
from ..core.plotting import small_png
from ..trajectories.trajectory_views import AttemptView, StepView, TrajectoryView

# variant -> item -> sha256 of the story's last picture
Finals = Mapping[str, Mapping[str, str]]
# variant -> item -> whether that picture is right
Right = Mapping[str, Mapping[str, float]]


def finals_sheet(
    images: ImageStore,
    stories: Sequence[PromptRow],
    finals: Finals,
    right: Right,
    count: int = 6,
    picture: int = 112,
) -> bytes:
    """A row a request, a picture a variant, captioned by whether it is right."""
    chosen = sorted(stories, key=lambda row: stable_hash("sheet", row.prompt_id))[:count]
    rows = [_row(images, story, finals, right) for story in chosen]
    sheet = contact_sheet(rows, picture, columns=max(3, len(finals)), rejections=False)
    return small_png(sheet, colours=255)


def _row(images: ImageStore, story: PromptRow, finals: Finals, right: Right) -> TrajectoryView:
    item = story.prompt_id
    cards = [(name, items.get(item), right[name].get(item)) for name, items in finals.items()]
    return TrajectoryView(
        trajectory_id=item,
        request=story.text,
        category=story.category,
        subcategory=story.subcategory,
        status="complete",
        reasoning="",
        input_images=(),
        steps=tuple(_card(images, number, *card) for number, card in enumerate(cards, 1)),
    )


def _card(
    images: ImageStore, number: int, variant: str, final: str | None, right: float | None
) -> StepView:
    """A variant's last picture; one that drew none gets a card that says so."""
    name = variant.replace("_", " ")
    if final is None:
        return StepView(number, name, "no picture", ())
    shown = AttemptView(images.get(final), "", True, True, "", "", None)
    return StepView(number, name, "as asked for" if right else "not as asked for", (shown,))
