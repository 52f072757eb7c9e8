"""The two prompts of EditScore: from a folder that the settings name, or our own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...agent_prompts import IMAGE, escape_tags, render
from ...agent_prompts.templates import version_of
from ...roles import BackendError
from .settings import EditScoreSettings

SEMANTICS, QUALITY = "semantics", "quality"
_OWN_PROMPTS = {SEMANTICS: "editscore-semantics", QUALITY: "editscore-quality"}
_GOAL = "<instruction>"


@dataclass(frozen=True)
class PromptTexts:
    """Both prompts. `custom`: a folder's texts by name; empty: our own.

    `max_rating` is the highest rating, as text.
    """

    max_rating: str
    custom: dict[str, str]

    @property
    def origin(self) -> str:
        """Whose prompts they are, for people."""
        return "its authors', as given" if self.custom else "ours, which it was not trained on"

    @property
    def versions(self) -> list[str]:
        """What the answers depend on, for the model's identity."""
        if self.custom:
            return [self.custom[SEMANTICS], self.custom[QUALITY]]
        return [self.max_rating, *(version_of(name) for name in _OWN_PROMPTS.values())]

    def semantics(self, instruction: str) -> str:
        """The prompt about the images before and after; `instruction`: the step's goal."""
        goal = escape_tags(instruction)
        if self.custom:
            return IMAGE * 2 + self.custom[SEMANTICS].replace(_GOAL, goal)
        return render(_OWN_PROMPTS[SEMANTICS], instruction=goal, best=self.max_rating).text

    def quality(self) -> str:
        """The prompt about the image after."""
        if self.custom:
            return IMAGE + self.custom[QUALITY]
        return render(_OWN_PROMPTS[QUALITY], best=self.max_rating).text


def prompt_texts(settings: EditScoreSettings) -> PromptTexts:
    """The prompts that the settings name.

    Raises:
        BackendError: a file is missing from their folder, or has no place for the goal.
    """
    custom = dict(_read_texts(settings.prompts)) if settings.prompts else {}
    if custom and _GOAL not in custom[SEMANTICS]:
        raise BackendError(
            f"{settings.prompts}/{SEMANTICS}.txt: put {_GOAL} where the goal of the step belongs"
        )
    return PromptTexts(f"{settings.score_range:g}", custom)


def _read_texts(folder: Path) -> Iterator[tuple[str, str]]:
    for name in (SEMANTICS, QUALITY):
        path = folder.expanduser() / f"{name}.txt"
        try:
            yield name, escape_tags(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise BackendError(
                f"{path} cannot be read: put the {name} prompt there, or set `editscore.prompts` "
                "to null"
            ) from error
